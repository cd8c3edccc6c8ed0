// The vote before a collective that ranks have not agreed on (Entry::asking): whether all of them are ready for it.
//
// Every rank of the set gives a word, that it asks or that it declines; none continues before it has received, directly
// or indirectly, the words of all. A word does not depend on the collective, so that a rank can decline one that it
// does not know: the backends of a set share one exchange, whichever of them would perform it.
//
// A few ranks exchange their words directly, in one latency, and each may add a note: a small collective then needs no
// separate messages. Between many ranks the words are disseminated: in round k every rank sends the words that it has
// received so far to the rank 2^k after it, and receives from the rank 2^k before it. After ceil(log2 N) rounds each
// has those of all; messages of one byte, one sent and one received per round. Source: D. Hensgen, R. Finkel and U.
// Manber, "Two algorithms for barrier synchronization", 1988.
//
// Used on the thread that drives the engine. Throws the transport's errors; afterwards it may only be destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/tensor/process_set.h"
#include "ops/transport/transport.h"

namespace hvd {

class WordExchange {
 public:
  // A wait ends with a Timeout after `timeout`, not counting the time in which other ranks are merely late.
  explicit WordExchange(Duration timeout) : timeout_(timeout) {}
  virtual ~WordExchange() = default;
  WordExchange(const WordExchange&) = delete;
  WordExchange& operator=(const WordExchange&) = delete;

  // This rank's note, to be written before ask(), and afterwards those of all ranks; null if there are only words.
  static constexpr std::size_t kNoteBytes = 112;
  virtual std::byte* local_note() { return nullptr; }
  virtual const std::byte* note(int /*rank*/) const { return nullptr; }

  // Returns once all ranks are known to ask; throws Declined if one has declined. The set must have all ranks of the
  // exchange; `call_id` numbers its collectives, like CollectiveCall::call_id.
  void ask(const ProcessSet& set, std::uint32_t call_id);
  // Returns once all ranks know.
  void decline(const ProcessSet& set, std::uint32_t call_id);

  // See Backend.
  virtual void set_late_callback(Duration timeout, const std::function<bool()>& late);

 protected:
  enum class Word : std::uint8_t { asks, declines };
  // Returns whether any rank declines.
  virtual Word exchange(Word own, const Tag& tag) = 0;

  Word disseminate(Transport& transport, std::span<const int> members, int position, Word own, const Tag& tag);
  // Like Transport::wait(), but calls the late callback if it takes long.
  void await(Transport& transport, Transport::RequestId request);
  // Throws if a word received from `rank` is invalid.
  static void check(Word word, int rank);
  // Calls the late callback. Returns false if it must not be called again in this exchange.
  bool say_late();

 private:
  Word exchange(const ProcessSet& set, std::uint32_t call_id, Word own);

  const Duration timeout_;
  Duration wait_timeout_{};
  std::function<bool()> late_;
  bool says_late_ = false;  // in the current exchange
};

// The exchange between all ranks of a transport.
std::unique_ptr<WordExchange> make_transport_words(std::shared_ptr<Transport> transport, Duration timeout);

}  // namespace hvd

// The vote before a collective that ranks have not agreed on (EntryMode::asking): whether all of them are ready for it.
//
// Every rank of the set gives a vote, that it asks or that it declines; none continues before it has received, directly
// or indirectly, the votes of all. A vote does not depend on the collective, so that a rank can decline one that it
// does not know: the backends of a set share one exchange, whichever of them would perform it.
//
// A few ranks exchange their votes directly, in one latency, and each may add a payload: a small collective then needs
// no separate messages. Between many ranks the votes are disseminated: in round k every rank sends the votes that it
// has received so far to the rank 2^k after it, and receives from the rank 2^k before it. After ceil(log2 N) rounds
// each has those of all; messages of one byte, one sent and one received per round. Source: D. Hensgen, R. Finkel and
// U. Manber, "Two algorithms for barrier synchronization", 1988.
//
// Used on the thread that drives the engine. Throws the transport's errors; afterwards it may only be destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/tensor/collective.h"
#include "ops/transport/transport.h"

namespace hvd {

class VoteExchange {
 public:
  // A wait ends with a Timeout after `timeout`, not counting the time in which other ranks are merely late.
  explicit VoteExchange(Duration timeout);
  virtual ~VoteExchange() = default;
  VoteExchange(const VoteExchange&) = delete;
  VoteExchange& operator=(const VoteExchange&) = delete;

  // This rank's payload, to be written before ask(), and afterwards those of all ranks; null if there are only votes.
  static constexpr std::size_t kPayloadBytes = 112;
  virtual std::byte* local_payload();
  virtual const std::byte* payload(int /*rank*/) const;

  // Returns once all ranks are known to ask; throws Declined if one has declined. The set must have all ranks of the
  // exchange; `call_id` numbers its collectives, like CollectiveCall::call_id.
  void ask(const ProcessSet& set, std::uint32_t call_id);
  // Returns once all ranks know.
  void decline(const ProcessSet& set, std::uint32_t call_id);

  // See Backend.
  virtual void set_late_callback(Duration timeout, const std::function<bool()>& late);

 protected:
  enum class Vote : std::uint8_t { ask, decline };
  // Returns whether any rank declines.
  virtual Vote exchange(Vote own, const Tag& tag) = 0;

  Vote disseminate(Transport& transport, std::span<const int> members, int position, Vote own, const Tag& tag);
  // Like Transport::wait(), but calls the late callback if it takes long.
  void await(Transport& transport, Transport::RequestId request);
  // Throws if a vote received from `rank` is invalid.
  static void check(Vote vote, int rank);
  // Calls the late callback. Returns false if it must not be called again in this exchange.
  bool call_late_callback();

 private:
  Vote exchange(const ProcessSet& set, std::uint32_t call_id, Vote own);

  const Duration timeout_;
  Duration wait_timeout_{};
  std::function<bool()> late_;
  bool calls_late_callback_ = false;  // in the current exchange
};

// The exchange between all ranks of a transport.
std::unique_ptr<VoteExchange> make_transport_vote_exchange(std::shared_ptr<Transport> transport, Duration timeout);

}  // namespace hvd

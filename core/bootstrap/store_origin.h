// Serves key-value requests of ranks. StoreOrigin owns the data of the job's one store, and parks gets until their key
// is set; launcher/remote/store_relay.h forwards what it does not know. Pure. Thread-compatible: each is used by its
// owner's event loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/bootstrap/store_protocol.h"

namespace hvd {

inline constexpr std::size_t kMaxStoreBytes = std::size_t{1} << 30;

// The map behind every store: values that are set, counters that are added to, and bounds on both.
//
// Values and counters have separate name spaces. A value may be set again; earlier readers keep what they got.
class StoreTable {
 public:
  explicit StoreTable(std::size_t capacity_bytes = kMaxStoreBytes) : capacity_bytes_(capacity_bytes) {}

  // Throw InvalidArgument: key or value too long, store full, counter overflow. The table is unchanged then.
  void set(const std::string& key, std::string value);
  std::int64_t add(const std::string& key, std::int64_t amount);

  // Null while the key was not set. Valid until the next call.
  const std::string* find(const std::string& key) const;

 private:
  void reserve(const std::string& key, std::size_t freed, std::size_t needed);

  std::size_t capacity_bytes_;
  std::size_t used_bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::int64_t> counters_;
};

class StoreSource {
 public:
  // The text is valid during the call. PeerLost: the store is lost for all ranks, permanently. May call ask() and
  // forget(), but must not destroy the source.
  using Answer = std::function<void(StatusCode code, std::string_view text)>;
  // Identifies a request that waits for its answer; 0: none.
  using RequestId = std::uint64_t;

  virtual ~StoreSource() = default;

  // Answers once: before it returns (0 then), or later. The request's own id is ignored.
  virtual RequestId ask(StoreRequest request, Answer answer) = 0;

  // Cancels the answer. A set or add takes effect nevertheless. No effect if the request was answered.
  virtual void forget(RequestId request_id) = 0;
};

// Gets whose key is missing, until the key is set or the get is cancelled.
class ParkedGets {
 public:
  using RequestId = StoreSource::RequestId;
  using Answer = StoreSource::Answer;

  // `request_id` must not have been used before.
  void park(RequestId request_id, const std::string& key, Answer answer);
  // No effect if it is not parked.
  void forget(RequestId request_id);
  // Removes one of the gets that wait for the key, in the order of parking. One at a time: while it is answered, others
  // may be cancelled.
  std::optional<Answer> take(const std::string& key);

  std::size_t size() const { return waiting_.size(); }

 private:
  struct Get {
    std::string key;
    Answer answer;
  };
  std::unordered_map<RequestId, Get> waiting_;
  std::unordered_map<std::string, std::vector<RequestId>> by_key_;  // none of them empty
};

// The job's one store.
class StoreOrigin : public StoreSource {
 public:
  explicit StoreOrigin(std::size_t capacity_bytes = kMaxStoreBytes) : table_(capacity_bytes) {}

  // Sets and adds are answered immediately.
  RequestId ask(StoreRequest request, Answer answer) override;
  void forget(RequestId request_id) override { parked_.forget(request_id); }

  std::size_t parked() const { return parked_.size(); }

 private:
  void set(StoreRequest request, const Answer& answer);
  RequestId get(const std::string& key, Answer& answer);  // moves from it only to park it

  StoreTable table_;
  ParkedGets parked_;
  RequestId last_request_id_ = 0;
};

// Tells ranks in the rendezvous, which have no connections yet that could break, that the job has failed: which rank,
// and how. Called by the owner of the store; see check_job_failure().
void set_job_failure(StoreSource& store, const std::string& cause);

}  // namespace hvd

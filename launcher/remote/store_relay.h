// Forwards requests to the job's store between hosts. An agent has a StoreRelay, which caches fetched values and
// forwards all other requests to its parent; the parent has a StoreBranch for each link to an agent. Pure. A relay
// serves the ranks of its host (core/bootstrap/store_server.h) and, in a tree, the agents below it. Concurrent gets of
// the same key cost the parent one request. Values may be cached since a key is set once (store.h); counters are not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "core/bootstrap/store_origin.h"

namespace hvd::launcher {

// The limit per relay, and so per branch; every rank below it has at most one open request. Abandoned gets count, too.
inline constexpr std::size_t kMaxOpenStoreRequests = 65'536;
inline constexpr const char* kTooManyStoreRequests = "too many requests to the store are under way";
// A relay that has cached more than this clears its cache.
inline constexpr std::size_t kMaxRelayBytes = std::size_t{64} << 20;

class StoreRelay : public StoreSource {
 public:
  // Sends a request to the parent, which answers with the same id, in any order, and never during the call.
  using Send = std::function<void(std::uint64_t id, StoreRequest request)>;

  explicit StoreRelay(Send send, std::size_t kept_bytes = kMaxRelayBytes);

  RequestId ask(StoreRequest request, Answer answer) override;
  void forget(RequestId request_id) override;

  // The parent's answer. Unknown ids are ignored.
  void answered(std::uint64_t id, StatusCode code, std::string_view text);
  // The parent is lost: open and future requests are answered with PeerLost and this cause.
  void lost(const std::string& cause);

 private:
  struct Open {
    StoreOperation operation = StoreOperation::get;
    std::string key;  // get only
    Answer answer;    // set and add only; null: the request was forgotten
  };

  const Send send_;
  const std::size_t kept_bytes_;
  StoreTable kept_;
  ParkedGets parked_;
  std::unordered_map<std::uint64_t, Open> open_;  // requests to the parent
  std::unordered_set<std::string> fetched_;       // keys of the open gets
  std::uint64_t last_id_ = 0;                     // the last request id, too
  std::optional<std::string> lost_;
};

// The parent's side of one agent's store requests, destroyed with them when the link is lost. Event loop's thread.
class StoreBranch {
 public:
  // Sends an answer to the agent. Must not destroy the branch. The text is valid during the call.
  using Send = std::function<void(std::uint64_t id, StatusCode code, std::string_view text)>;

  // `source` (StoreOrigin or StoreRelay) must outlive it.
  StoreBranch(StoreSource& source, Send send);
  ~StoreBranch();
  StoreBranch(const StoreBranch&) = delete;
  StoreBranch& operator=(const StoreBranch&) = delete;

  // Handles a request of the agent, with the id of its StoreRelay::Send. Answers during the call or later; refuses an
  // id that is open already, and more than kMaxOpenStoreRequests open requests.
  void ask(std::uint64_t id, StoreRequest request);

 private:
  StoreSource& source_;
  const Send send_;
  std::unordered_map<std::uint64_t, StoreSource::RequestId> open_;  // by the agent's id
};

}  // namespace hvd::launcher

// The job's store between hosts. An agent has a StoreRelay, which caches what it has fetched and forwards everything
// else to its parent; the parent has a StoreBranch for each link to an agent. Pure.
//
// A relay serves the ranks of its host (core/rendezvous/store_sessions.h) and, in a tree, the agents below it. Several
// of them that want the same key cost the parent one request. Values may be cached because a key is set once
// (core/rendezvous/store.h). Counters never are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "core/rendezvous/parked_gets.h"
#include "core/rendezvous/store_source.h"
#include "core/rendezvous/store_table.h"

namespace hvd::launcher {

// Of one relay, and so of one branch: every rank below it has at most one. Gets that were given up count too.
inline constexpr std::size_t kMaxOpenStoreRequests = 65'536;
inline constexpr const char* kTooManyStoreRequests = "too many requests to the store are under way";
// A relay that has fetched more than this begins anew.
inline constexpr std::size_t kMaxRelayBytes = std::size_t{64} << 20;

class StoreRelay : public StoreSource {
 public:
  // To the parent, which answers with the same id, in any order, later: never during the call.
  using Send = std::function<void(std::uint64_t id, StoreRequest request)>;

  explicit StoreRelay(Send send, std::size_t kept_bytes = kMaxRelayBytes);

  RequestId ask(StoreRequest request, Answer answer) override;
  void forget(RequestId request_id) override;

  // The parent's answer. An id that nobody waits for is passed over.
  void answered(std::uint64_t id, StatusCode code, std::string_view text);
  // The parent is gone: whoever waits, and whoever asks from now on, hears PeerLost with this cause.
  void lost(const std::string& cause);

 private:
  struct Open {
    StoreOperation operation = StoreOperation::get;
    std::string key;  // get
    Answer answer;    // set, add; none: nobody wants it any more
  };

  void pass_on(std::uint64_t id, StoreRequest request, Answer answer);
  void answered_get(const std::string& key, StatusCode code, std::string_view text);
  void keep(const std::string& key, std::string_view value);

  const Send send_;
  const std::size_t kept_bytes_;
  StoreTable kept_;
  ParkedGets parked_;
  std::unordered_map<std::uint64_t, Open> open_;  // what the parent was asked
  std::unordered_set<std::string> fetched_;       // keys of the open gets
  std::uint64_t last_id_ = 0;                     // also of request_ids
  std::optional<std::string> lost_;
};

// What one agent asks of its parent's store. The parent destroys the branch when the link is lost, and with it what
// that agent waited for. Event loop's thread.
class StoreBranch {
 public:
  // To the agent. Must not destroy the branch. The text is valid during the call.
  using Send = std::function<void(std::uint64_t id, StatusCode code, std::string_view text)>;

  // `source` (StoreOrigin or StoreRelay) must outlive it.
  StoreBranch(StoreSource& source, Send send);
  ~StoreBranch();
  StoreBranch(const StoreBranch&) = delete;
  StoreBranch& operator=(const StoreBranch&) = delete;

  // The agent's request, with the agent's id (StoreRelay::Send's). Answers at once or later; refuses an id that is
  // under way, and more than kMaxOpenStoreRequests at once.
  void ask(std::uint64_t id, StoreRequest request);

 private:
  StoreSource& source_;
  const Send send_;
  std::unordered_map<std::uint64_t, StoreSource::RequestId> open_;  // by the agent's id
};

}  // namespace hvd::launcher

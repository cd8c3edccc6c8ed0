// What one agent asks of the store of its parent: hvdrun, or the agent above it. Event loop's thread.
//
// The parent has one for each link to an agent, and destroys it when the link is lost: what that agent waited for is
// forgotten then.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "core/rendezvous/store_source.h"

namespace hvd::launcher {

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

#include "launcher/store_branch.h"

#include <utility>

#include "launcher/store_relay.h"

namespace hvd::launcher {

StoreBranch::StoreBranch(StoreSource& source, Send send) : source_(source), send_(std::move(send)) {}

StoreBranch::~StoreBranch() {
  for (const auto& [id, request_id] : open_) source_.forget(request_id);
}

void StoreBranch::ask(std::uint64_t id, StoreRequest request) {
  if (open_.contains(id)) return send_(id, StatusCode::invalid_argument, "a request with this id is under way");
  if (open_.size() >= kMaxOpenStoreRequests) return send_(id, StatusCode::invalid_argument, kTooManyStoreRequests);
  const auto answer = [this, id](StatusCode code, std::string_view text) {
    open_.erase(id);
    send_(id, code, text);
  };
  const StoreSource::RequestId request_id = source_.ask(std::move(request), answer);
  if (request_id != 0) open_.emplace(id, request_id);
}

}  // namespace hvd::launcher

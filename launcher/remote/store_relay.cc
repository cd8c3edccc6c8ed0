#include "launcher/remote/store_relay.h"

#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hvd::launcher {

StoreRelay::StoreRelay(Send send, std::size_t kept_bytes)
    : send_(std::move(send)), kept_bytes_(kept_bytes), kept_(kept_bytes) {}

StoreSource::RequestId StoreRelay::ask(StoreRequest request, Answer answer) {
  if (lost_) {
    answer(StatusCode::peer_lost, *lost_);
    return 0;
  }
  const bool is_get = request.operation == StoreOperation::get;
  if (const std::string* value = is_get ? kept_.find(request.key) : nullptr) {
    answer(StatusCode::ok, *value);
    return 0;
  }
  const bool is_asked_already = is_get && fetched_.contains(request.key);
  try {
    check_store_key(request.key);
    if (!is_asked_already && open_.size() >= kMaxOpenStoreRequests) throw InvalidArgument(kTooManyStoreRequests);
  } catch (const InvalidArgument& error) {
    answer(error.code(), error.what());
    return 0;
  }
  const RequestId request_id = ++last_id_;
  if (is_get) parked_.park(request_id, request.key, std::exchange(answer, nullptr));
  if (is_asked_already) return request_id;
  if (is_get) fetched_.insert(request.key);
  open_.emplace(request_id,
                Open{.operation = request.operation, .key = is_get ? request.key : "", .answer = std::move(answer)});
  send_(request_id, std::move(request));
  return request_id;
}

void StoreRelay::forget(RequestId request_id) {
  parked_.forget(request_id);
  const auto open = open_.find(request_id);
  if (open != open_.end()) open->second.answer = nullptr;
}

void StoreRelay::answered(std::uint64_t id, StatusCode code, std::string_view text) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  const Open open = std::move(found->second);
  open_.erase(found);
  if (text.size() > kMaxStoreValueBytes) {
    code = StatusCode::internal;
    text = "the answer of the store is too long";
  }
  if (open.answer) open.answer(code, text);
  if (open.operation != StoreOperation::get) return;
  fetched_.erase(open.key);
  try {
    if (code == StatusCode::ok) kept_.set(open.key, std::string(text));
  } catch (const InvalidArgument&) {  // the cache is full
    kept_ = StoreTable(kept_bytes_);
  }
  while (const auto answer = parked_.take(open.key)) (*answer)(code, text);
}

void StoreRelay::lost(const std::string& cause) {
  lost_ = cause;
  std::vector<std::uint64_t> ids;
  for (const auto& [id, open] : open_) ids.push_back(id);
  for (const std::uint64_t id : ids) answered(id, StatusCode::peer_lost, cause);
}

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

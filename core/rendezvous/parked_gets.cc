#include "core/rendezvous/parked_gets.h"

#include <utility>

namespace hvd {

void ParkedGets::park(RequestId request_id, const std::string& key, Answer answer) {
  waiting_.emplace(request_id, Get{.key = key, .answer = std::move(answer)});
  by_key_[key].push_back(request_id);
}

void ParkedGets::forget(RequestId request_id) {
  const auto get = waiting_.find(request_id);
  if (get == waiting_.end()) return;
  const auto request_ids = by_key_.find(get->second.key);
  std::erase(request_ids->second, request_id);
  if (request_ids->second.empty()) by_key_.erase(request_ids);
  waiting_.erase(get);
}

std::optional<ParkedGets::Answer> ParkedGets::take(const std::string& key) {
  const auto request_ids = by_key_.find(key);
  if (request_ids == by_key_.end()) return std::nullopt;
  const RequestId request_id = request_ids->second.front();
  Answer answer = std::move(waiting_.at(request_id).answer);
  forget(request_id);
  return answer;
}

}  // namespace hvd

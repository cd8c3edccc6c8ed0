#include "core/rendezvous/parked_gets.h"

#include <utility>

namespace hvd {

void ParkedGets::park(Ticket ticket, const std::string& key, Answer answer) {
  waiting_.emplace(ticket, Get{.key = key, .answer = std::move(answer)});
  by_key_[key].push_back(ticket);
}

void ParkedGets::forget(Ticket ticket) {
  const auto get = waiting_.find(ticket);
  if (get == waiting_.end()) return;
  const auto tickets = by_key_.find(get->second.key);
  std::erase(tickets->second, ticket);
  if (tickets->second.empty()) by_key_.erase(tickets);
  waiting_.erase(get);
}

std::optional<ParkedGets::Answer> ParkedGets::take(const std::string& key) {
  const auto tickets = by_key_.find(key);
  if (tickets == by_key_.end()) return std::nullopt;
  const Ticket ticket = tickets->second.front();
  Answer answer = std::move(waiting_.at(ticket).answer);
  forget(ticket);
  return answer;
}

}  // namespace hvd

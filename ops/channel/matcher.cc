#include "ops/channel/matcher.h"

#include <utility>

namespace hvd {

template <typename T>
T Matcher::take_front(Queues<T>& queues, typename Queues<T>::iterator queue) {
  T taken = std::move(queue->second.front().value);
  queue->second.pop_front();
  if (queue->second.empty()) queues.erase(queue);
  return taken;
}

std::optional<Transfer> Matcher::take_receive(int source, std::uint64_t channel, std::int64_t tag) {
  const auto named = receives_.find({channel, tag, source});
  const auto any = receives_.find({channel, tag, kAnyRank});
  if (named == receives_.end() && any == receives_.end()) return std::nullopt;
  const bool takes_any =
      named == receives_.end() || (any != receives_.end() && any->second.front().number < named->second.front().number);
  return take_front(receives_, takes_any ? any : named);
}

std::optional<Arrival> Matcher::take_arrival(int source, std::uint64_t channel, std::int64_t tag) {
  auto first = arrivals_.end();
  if (source != kAnyRank) {
    first = arrivals_.find({channel, tag, source});
  } else {
    auto next = arrivals_.lower_bound({channel, tag, kAnyRank});
    for (; next != arrivals_.end() && next->first.channel == channel && next->first.tag == tag; ++next) {
      const bool earlier = first == arrivals_.end() || next->second.front().number < first->second.front().number;
      if (earlier) first = next;
    }
  }
  if (first == arrivals_.end()) return std::nullopt;
  return take_front(arrivals_, first);
}

void Matcher::keep(Arrival arrival) {
  const Key key{arrival.channel, arrival.tag, arrival.source};
  arrivals_[key].push_back({next_number_++, std::move(arrival)});
}

void Matcher::keep(Transfer receive) {
  const Key key{receive.message.channel, receive.message.tag, receive.message.peer};
  receives_[key].push_back({next_number_++, std::move(receive)});
}

void Matcher::for_each_receive(const std::function<void(Transfer&)>& visit) {
  for (auto& [key, queue] : receives_) {
    for (auto& waiting : queue) visit(waiting.value);
  }
}

std::vector<Transfer> Matcher::take_receives(const std::function<bool(const Transfer&)>& wanted) {
  std::vector<Transfer> taken;
  for (auto& [key, queue] : receives_) {
    std::deque<Numbered<Transfer>> left;
    for (auto& waiting : queue) {
      if (wanted(waiting.value)) {
        taken.push_back(std::move(waiting.value));
      } else {
        left.push_back(std::move(waiting));
      }
    }
    queue = std::move(left);
  }
  std::erase_if(receives_, [](const auto& entry) { return entry.second.empty(); });
  return taken;
}

void Matcher::drop_offers_from(int source) {
  for (auto& [key, queue] : arrivals_) {
    if (key.source == source) std::erase_if(queue, [](const auto& waiting) { return waiting.value.offer.has_value(); });
  }
  std::erase_if(arrivals_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace hvd

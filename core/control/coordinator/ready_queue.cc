#include "core/control/coordinator/ready_queue.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/control/coordinator/negotiations.h"

namespace hvd {

namespace {

// Transmitting more than this takes at least as long as an answer waits.
constexpr std::int64_t kBusyBytes = 256 * 1024;

}  // namespace

TimePoint AnswerPolicy::due(const std::vector<Ready>& ready, bool more) const {
  if (!more) return TimePoint::min();
  std::int64_t left = kBusyBytes;
  for (const Ready& operation : ready) {
    if (operation.bytes >= left) return TimePoint::min();
    left -= operation.bytes;
  }
  return ready.front().since + coalescing;
}

std::vector<std::size_t> AnswerPolicy::choose(const std::vector<Ready>& ready) const {
  std::vector<std::size_t> order(ready.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto has_priority = [](const Ready& operation) { return operation.priority != 0; };
  if (std::ranges::none_of(ready, has_priority)) return order;
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return ready[i].priority; });
  std::int64_t left = bucket_bytes;
  std::size_t fitting = 0;
  while (fitting < order.size() && ready[order[fitting]].bytes <= left) left -= ready[order[fitting++]].bytes;
  order.resize(std::max<std::size_t>(fitting, 1));
  return order;
}

void ReadyQueue::add(Negotiation& negotiation, TimePoint now) {
  const OperationSpec& spec = negotiation.agreement().first();
  ready_.push_back(&negotiation);
  waiting_.push_back({.priority = spec.priority, .bytes = bytes_of(spec), .since = now});
  due_ = TimePoint::min();
}

std::span<Negotiation* const> ReadyQueue::take(std::size_t open, TimePoint now) {
  if (ready_.empty()) return {};
  due_ = policy_.due(waiting_, open > ready_.size());
  if (now < due_) return {};
  const std::vector<std::size_t> chosen = policy_.choose(waiting_);
  return chosen.size() == ready_.size() && std::ranges::is_sorted(chosen) ? take_all() : take_chosen(chosen);
}

std::span<Negotiation* const> ReadyQueue::take_all() {
  taken_.clear();
  taken_.swap(ready_);
  waiting_.clear();
  due_ = Deadline::max();
  return taken_;
}

std::span<Negotiation* const> ReadyQueue::take_chosen(const std::vector<std::size_t>& chosen) {
  taken_.clear();
  for (const std::size_t i : chosen) taken_.push_back(std::exchange(ready_[i], nullptr));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i] == nullptr) continue;
    ready_[kept] = ready_[i];
    waiting_[kept++] = waiting_[i];
  }
  ready_.resize(kept);
  waiting_.resize(kept);
  due_ = kept > 0 ? TimePoint::min() : Deadline::max();
  return taken_;
}

}  // namespace hvd

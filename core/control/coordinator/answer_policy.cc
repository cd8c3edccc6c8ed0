#include "core/control/coordinator/answer_policy.h"

#include <algorithm>
#include <numeric>

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

}  // namespace hvd

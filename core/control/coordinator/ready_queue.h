// Decides when the coordinator answers ready operations, and in which order.
//
// The operations of a burst become ready one by one, and each response list costs messages and collectives of its own:
// while more operations are pending, the first response waits for tens of microseconds, unless enough is ready to keep
// the ranks busy for that long. If operations have priorities, a response list has at most one bucket, so that an
// urgent operation that becomes ready meanwhile overtakes those that still wait. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/control/coordinator/negotiations.h"

namespace hvd {

struct BatchingPolicy {
  struct Ready {
    std::int32_t priority = 0;  // higher ones first
    std::int64_t bytes = 0;
    TimePoint since{};
  };
  // Transmitting more than this takes at least as long as a response waits.
  static constexpr std::int64_t kBusyBytes = 256 * 1024;

  Duration coalescing{};          // zero: nothing waits
  std::int64_t bucket_bytes = 0;  // the most bytes of a response list if operations have priorities

  // When to respond. `ready`: at least one, in the order in which they became ready. `more`: some ranks have asked for
  // other operations.
  TimePoint due(const std::vector<Ready>& ready, bool more) const {
    if (!more) return TimePoint::min();
    std::int64_t left = kBusyBytes;
    for (const Ready& operation : ready) {
      if (operation.bytes >= left) return TimePoint::min();
      left -= operation.bytes;
    }
    return ready.front().since + coalescing;
  }

  // The operations of the next response list, in order: indices.
  std::vector<std::size_t> choose(const std::vector<Ready>& ready) const {
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
};

// The negotiations that are ready, until the policy has them answered. Owned by the Coordinator.
class ReadyQueue {
 public:
  explicit ReadyQueue(const BatchingPolicy& policy) : policy_(policy) {}

  void set_policy(const BatchingPolicy& policy) { policy_ = policy; }
  void add(Negotiation& negotiation, TimePoint now) {
    const OperationSpec& spec = negotiation.agreement().first();
    ready_.push_back(&negotiation);
    waiting_.push_back({.priority = spec.priority, .bytes = bytes_of(spec), .since = now});
    due_ = TimePoint::min();
  }

  // Removes those to be answered now, and returns them in order; valid until the next call. `open`: how many
  // negotiations are in progress, the ready ones included.
  std::span<Negotiation* const> take(std::size_t open, TimePoint now) {
    if (ready_.empty()) return {};
    due_ = policy_.due(waiting_, open > ready_.size());
    if (now < due_) return {};
    const std::vector<std::size_t> chosen = policy_.choose(waiting_);
    return chosen.size() == ready_.size() && std::ranges::is_sorted(chosen) ? take_all() : take_chosen(chosen);
  }
  std::span<Negotiation* const> take_all() {
    taken_.clear();
    taken_.swap(ready_);
    waiting_.clear();
    due_ = Deadline::max();
    return taken_;
  }

  // When to call take() again; Deadline::max() while nothing is ready.
  Deadline due() const { return due_; }

 private:
  std::span<Negotiation* const> take_chosen(const std::vector<std::size_t>& chosen) {
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

  BatchingPolicy policy_;
  std::vector<Negotiation*> ready_;             // in the order in which they became ready
  std::vector<BatchingPolicy::Ready> waiting_;  // the policy's input, for each of them
  std::vector<Negotiation*> taken_;
  Deadline due_ = Deadline::max();
};

}  // namespace hvd

// Decides when the coordinator answers ready operations, and in which order.
//
// The operations of a burst become ready one by one, and each answer costs messages and collectives of its own: while
// more operations are pending, the first answer waits for tens of microseconds, unless enough is ready to keep the
// ranks busy for that long. If operations have priorities, an answer contains at most one bucket, so that an urgent
// operation that becomes ready meanwhile overtakes those that still wait. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/clock.h"

namespace hvd {

struct AnswerPolicy {
  struct Ready {
    std::int32_t priority = 0;  // higher ones first
    std::int64_t bytes = 0;
    TimePoint since{};
  };

  Duration coalescing{};          // zero: nothing waits
  std::int64_t bucket_bytes = 0;  // the most bytes of an answer if operations have priorities

  // When to answer. `ready`: at least one, in the order in which they became ready. `more`: some ranks have asked for
  // other operations.
  TimePoint due(const std::vector<Ready>& ready, bool more) const;

  // The operations of the next answer, in order: indices.
  std::vector<std::size_t> choose(const std::vector<Ready>& ready) const;
};

struct Negotiation;

// The negotiations that are ready, until the policy has them answered. Owned by the Coordinator.
class ReadyQueue {
 public:
  explicit ReadyQueue(const AnswerPolicy& policy) : policy_(policy) {}

  void set_policy(const AnswerPolicy& policy) { policy_ = policy; }
  void add(Negotiation& negotiation, TimePoint now);

  // Removes those to be answered now, and returns them in order; valid until the next call. `open`: how many
  // negotiations are in progress, the ready ones included.
  std::span<Negotiation* const> take(std::size_t open, TimePoint now);
  std::span<Negotiation* const> take_all();

  // When to call take() again; Deadline::max() while nothing is ready.
  Deadline due() const { return due_; }

 private:
  std::span<Negotiation* const> take_chosen(const std::vector<std::size_t>& chosen);

  AnswerPolicy policy_;
  std::vector<Negotiation*> ready_;           // in the order in which they became ready
  std::vector<AnswerPolicy::Ready> waiting_;  // the policy's input, for each of them
  std::vector<Negotiation*> taken_;
  Deadline due_ = Deadline::max();
};

}  // namespace hvd

// Decides when the coordinator answers ready operations, and in which order.
//
// The operations of a burst become ready one by one, and each answer costs messages and collectives of its own: while
// more operations are pending, the first answer waits for tens of microseconds, unless enough is ready to keep the
// ranks busy for that long. If operations have priorities, an answer contains at most one bucket, so that an urgent
// operation that becomes ready meanwhile overtakes those that still wait. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace hvd

// When the coordinator answers what is ready, and with what first.
//
// A burst of submissions is ready bit by bit, and each answer costs messages and collectives of its own: while more is
// under way, the first answer waits for tens of microseconds, unless there is enough already to keep the ranks busy for
// that long. Where operations have priorities, an answer brings no more than a bucket, so that something urgent which
// becomes ready meanwhile goes before what is still waiting. Pure.
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
  std::int64_t bucket_bytes = 0;  // an answer's, where there are priorities

  // When to answer. `ready`: in the order in which it became so, at least one. `more`: some ranks have asked for other
  // operations.
  TimePoint due(const std::vector<Ready>& ready, bool more) const;

  // What comes into the next answer, in its order: indices.
  std::vector<std::size_t> choose(const std::vector<Ready>& ready) const;
};

}  // namespace hvd

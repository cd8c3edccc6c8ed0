// Has the device been at one operation for too long? Pure: time is an argument.
//
// A stream performs one operation after the other, and waits for inputs before each: for how long, is the program's
// affair. So only the oldest one counts, and only from when it was seen to have begun.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/clock.h"

namespace hvd::nccl {

class Watchdog {
 public:
  explicit Watchdog(Duration limit) : limit_(limit) {}

  // `oldest`: the number of the oldest operation that is not over; `begun`: whether its inputs are there, and all
  // before it is over. True if it has been under way for the limit.
  bool expired(TimePoint now, std::uint64_t oldest, bool begun) {
    if (oldest != oldest_) {
      oldest_ = oldest;
      since_.reset();
    }
    if (begun && !since_) since_ = now;
    return since_ && now - *since_ >= limit_;
  }

 private:
  const Duration limit_;
  std::uint64_t oldest_ = 0;
  std::optional<TimePoint> since_;
};

}  // namespace hvd::nccl

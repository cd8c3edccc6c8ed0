// Detects whether the device has been busy with one operation for too long. Pure: time is an argument.
//
// A stream performs one operation after the other, and waits for inputs before each, for a time that the program
// determines. Therefore only the oldest operation counts, from when it was observed to have begun.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/clock.h"

namespace hvd::nccl {

class Watchdog {
 public:
  explicit Watchdog(Duration limit) : limit_(limit) {}

  // `oldest`: the number of the oldest pending operation; `begun`: whether its inputs are ready, and all earlier
  // operations have ended. Returns true if it has been running for the limit.
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

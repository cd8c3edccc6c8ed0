// The states of the schedule lock, for tests that wait for one.
#pragma once

#include <cstdint>
#include <thread>

#include "core/runtime/runtime.h"

namespace hvd::testing {

// As in metrics().lock_state.
constexpr std::uint64_t kLearn = 0, kLocked = 2;

// Whether the schedule is locked. The state is set a moment after works are done.
inline bool locked_soon(const Runtime& runtime) {
  for (int i = 0; i < 30'000 && runtime.metrics().lock_state.value() != kLocked; ++i) std::this_thread::sleep_for(1ms);
  return runtime.metrics().lock_state.value() == kLocked;
}

// How often this rank's locks have ended.
inline std::uint64_t breaks(const Runtime& runtime) {
  std::uint64_t sum = 0;
  for (const Counter& counter : runtime.metrics().breaks) sum += counter.value();
  return sum;
}

}  // namespace hvd::testing

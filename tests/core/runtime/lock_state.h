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
  for (int i = 0; i < 1000 && runtime.metrics().lock_state.value() != kLocked; ++i) std::this_thread::sleep_for(1ms);
  return runtime.metrics().lock_state.value() == kLocked;
}

}  // namespace hvd::testing

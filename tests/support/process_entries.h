// What the kernel lists of this process.
#pragma once

#include <filesystem>
#include <iterator>
#include <thread>

#include "core/base/clock.h"

namespace hvd::testing {

inline int count_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// Once they are so many: a thread is listed for a moment after it was joined.
inline int count_threads(int expected) {
  const Deadline deadline = deadline_after(10s);
  for (;;) {
    const std::filesystem::directory_iterator all("/proc/self/task");
    const int count = static_cast<int>(std::distance(begin(all), end(all)));
    if (count == expected || Clock::now() > deadline) return count;
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace hvd::testing

// Time as the project uses it: one monotonic clock, deadlines as points on it.
#pragma once

#include <chrono>

namespace hvd {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;
using TimePoint = Clock::time_point;
// A wait ends at its deadline with a Timeout that says what was waited for.
using Deadline = TimePoint;

using namespace std::chrono_literals;

inline Deadline deadline_after(Duration duration) { return Clock::now() + duration; }

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace hvd

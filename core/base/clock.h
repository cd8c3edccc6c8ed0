// Time as the project uses it: one monotonic clock, deadlines as points on it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>

namespace hvd {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;
using TimePoint = Clock::time_point;
// A wait ends at its deadline with a Timeout that says what was waited for.
using Deadline = TimePoint;

using namespace std::chrono_literals;

inline Deadline deadline_after(Duration duration) { return Clock::now() + duration; }

// What poll() and epoll_wait() take: milliseconds, rounded up, a minute at most; -1, for ever, without a deadline.
inline int poll_timeout(std::optional<Deadline> deadline) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// The same clock, to a few milliseconds, for a quarter of what the exact time costs.
inline TimePoint coarse_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

// That the calling thread has had so far. A system call, unlike the other clock.
inline Duration thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace hvd

// Time: one monotonic clock for the whole project, and deadlines as points on it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <optional>
#include <string>

namespace hvd {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;
using TimePoint = Clock::time_point;
// A wait that reaches its deadline ends with a Timeout that says what was waited for.
using Deadline = TimePoint;

using namespace std::chrono_literals;

inline Deadline deadline_after(Duration duration) { return Clock::now() + duration; }

// The sum, at most TimePoint::max().
inline TimePoint later(TimePoint time, Duration duration) {
  return time > TimePoint::max() - duration ? TimePoint::max() : time + duration;
}

// The earlier of those that there are.
inline std::optional<Deadline> earlier(std::optional<Deadline> a, std::optional<Deadline> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// The timeout for poll() and epoll_wait(): milliseconds, rounded up, at most a minute; -1 (forever) without a deadline.
inline int poll_timeout(std::optional<Deadline> deadline) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// The same clock with a resolution of a few milliseconds, at a quarter of the cost.
inline TimePoint coarse_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

// CPU time that the calling thread has used so far. A system call, unlike the other clock.
inline Duration thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// "1.5 s", for messages.
inline std::string age_text(Duration age) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", seconds(age));
  return text.data();
}

// A callback that ends a wait for another process before its deadline: the waiting thread calls it a few times a
// second, and it throws the reason. An empty alarm never does.

using Alarm = std::function<void()>;

inline constexpr Duration kAlarmPeriod = std::chrono::milliseconds(250);

// Schedules the calls of an alarm during one wait, which begins with the construction. The alarm outlives this object.
class AlarmClock {
 public:
  explicit AlarmClock(const Alarm& alarm) : alarm_(alarm) {}

  Deadline next() const { return alarm_ ? next_ : Deadline::max(); }
  // Calls the alarm if a call is due; throws what it throws.
  void poll() {
    if (Clock::now() < next()) return;
    alarm_();
    next_ = deadline_after(kAlarmPeriod);
  }

 private:
  const Alarm& alarm_;
  Deadline next_ = deadline_after(kAlarmPeriod);
};

}  // namespace hvd

// A callback that ends a wait for another process before its deadline: the waiting thread calls it a few times a
// second, and it throws the reason. An empty alarm never does.
#pragma once

#include <functional>

#include "core/base/clock.h"

namespace hvd {

using Alarm = std::function<void()>;

inline constexpr Duration kAlarmPeriod = std::chrono::milliseconds(250);

// Schedules the calls of an alarm during one wait, which begins with the construction. The alarm outlives this object.
class AlarmClock {
 public:
  explicit AlarmClock(const Alarm& alarm) : alarm_(alarm) {}

  Deadline next() const { return alarm_ ? next_ : Deadline::max(); }
  // Calls the alarm if a call is due; throws what it throws.
  void look() {
    if (Clock::now() < next()) return;
    alarm_();
    next_ = deadline_after(kAlarmPeriod);
  }

 private:
  const Alarm& alarm_;
  Deadline next_ = deadline_after(kAlarmPeriod);
};

}  // namespace hvd

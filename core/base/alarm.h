// How a wait for another process ends before its deadline: whoever waits asks a few times a second, and the alarm
// throws the reason. An empty one never does.
#pragma once

#include <functional>

#include "core/base/clock.h"

namespace hvd {

using Alarm = std::function<void()>;

inline constexpr Duration kAlarmPeriod = std::chrono::milliseconds(250);

// When the alarm is to be asked next, in a wait that begins with this. The alarm outlives it.
class AlarmClock {
 public:
  explicit AlarmClock(const Alarm& alarm) : alarm_(alarm) {}

  Deadline next() const { return alarm_ ? next_ : Deadline::max(); }
  // Asks it if it is time; throws what it throws.
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

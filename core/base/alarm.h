// How a wait for another process ends before its deadline: whoever waits asks a few times a second, and the alarm
// throws the reason. An empty one never does.
#pragma once

#include <functional>

#include "core/base/clock.h"

namespace hvd {

using Alarm = std::function<void()>;

inline constexpr Duration kAlarmPeriod = std::chrono::milliseconds(250);

}  // namespace hvd

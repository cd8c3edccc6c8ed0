// When the allocation ends that hvdrun runs in: Slurm says it in a variable (since 23.02), or when it is asked.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "launcher/plan/host_plan.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

inline constexpr Duration kLongestQuery = 5s;  // to Slurm's controller, which may be busy

// Of SLURM_JOB_END_TIME, in seconds since 1970; `now` likewise. Empty: it is not set, or is no number. Pure.
std::optional<Duration> time_left_in(const Environment& environment, double now);

// Of squeue's "1-02:03:04", "02:03:04", "03:04" or "0". Empty: another text, such as UNLIMITED. Pure.
std::optional<Duration> parse_time_left(std::string_view text);

// How long before its end a job has to begin to end, so that it has some time to train in a short allocation. Pure.
inline Duration margin_within(Duration margin, Duration left) { return std::min(margin, left / 2); }

// When an elastic job in this allocation has to begin to end: `margin` before its end. Empty: never. Runs squeue if
// the variable is not set, which may take kLongestQuery; `complain` gets one line if that fails.
std::optional<TimePoint> time_limit_of(const Environment& environment, Duration margin, const SignalSource& signals,
                                       const std::function<void(const std::string& line)>& complain);

}  // namespace hvd::launcher

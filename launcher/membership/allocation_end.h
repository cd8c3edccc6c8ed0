// Determines when hvdrun's Slurm allocation ends: from SLURM_JOB_END_TIME (since Slurm 23.02), which has the end as of
// the start of the job, and from squeue, which reports the current one.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "launcher/membership/polled_script.h"
#include "launcher/plan/host_plan.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

inline constexpr Duration kAllocationInterval = 180s;  // between two queries of squeue; limits are in minutes
inline constexpr Duration kSameEnd = 20s;              // two answers that differ by less mean the same end

// Of SLURM_JOB_END_TIME, in seconds since 1970; `now` likewise. Empty: it is not set, or is no number. Pure.
std::optional<Duration> time_left_in(const Environment& environment, double now);

// Of squeue's "1-02:03:04", "02:03:04", "03:04" or "0". Empty: another text, such as UNLIMITED. Pure.
std::optional<Duration> parse_time_left(std::string_view text);

// How long before its end a job has to begin to end, so that it has some time to train in a short allocation. Pure.
inline Duration margin_within(Duration margin, Duration left) { return std::min(margin, left / 2); }

// Tells when an elastic job has to begin to end: a margin before the end of its allocation. Asks squeue at once and
// then periodically, since a job's limit may be changed (scontrol update). Main thread only.
class AllocationEnd {
 public:
  struct Callbacks {
    // The job has to begin to end then; empty: never. Called when the end is known, and when it has changed.
    std::function<void(std::optional<TimePoint> limit, bool has_changed)> known;
    // Neither the variable nor squeue tells the end. Called at most once.
    std::function<void(const std::string& line)> warning;
  };

  // `environment`: hvdrun's own, with SLURM_JOB_ID. May call back.
  AllocationEnd(EventLoop& loop, const SignalSource& signals, const Environment& environment, Duration margin,
                Duration interval, Callbacks callbacks);

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status) { squeue_.child_ended(pid, status); }

 private:
  void on_answer(std::string_view text);
  void set_left(std::optional<Duration> left);
  void warn(const std::string& cause);

  const Duration margin_;
  const Callbacks callbacks_;
  std::optional<TimePoint> end_;  // empty: it has none, or is not known
  bool is_answered_ = false;      // by the variable, by squeue, or by a warning
  PolledScript squeue_;
};

}  // namespace hvd::launcher

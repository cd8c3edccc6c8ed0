// When an elastic job ends before it has finished: a scheduler's notice arrives, its allocation is almost over, or all
// of its hosts are preempted. Its ranks save their state at the next commit and leave; if none comes within a limit,
// the job ends as if by SIGTERM. Main thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "launcher/job/epochs.h"
#include "launcher/membership/allocation_end.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

class EarlyEnd {
 public:
  struct Options {
    Duration margin{};  // how long before its allocation the job ends; 0: never
    Duration limit{};   // for the next commit, unless SIGTERM asks for it
    bool verbose = false;
  };
  struct Callbacks {
    std::function<void(const std::string& line)> say;
    std::function<void()> give_up;  // no commit has come in time
  };

  // `epochs` outlives this. May call back.
  EarlyEnd(Options options, Epochs& epochs, EventLoop& loop, const SignalSource& signals, Callbacks callbacks);

  // Returns whether the signal is a notice that the job is about to be ended, which begins the early end.
  bool take_notice(int signal);
  void begin(const std::string& cause) { begin(cause, options_.limit); }

  std::optional<Deadline> next_deadline() const { return earlier(time_limit_, commit_limit_); }
  void check_time(TimePoint now);

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status) {
    if (allocation_) allocation_->child_ended(pid, status);
  }

 private:
  void begin(const std::string& cause, Duration limit);
  void watch_allocation(EventLoop& loop, const SignalSource& signals);
  void set_time_limit(std::optional<TimePoint> limit, bool has_changed);

  const Options options_;
  Epochs& epochs_;
  const Callbacks callbacks_;
  std::optional<Deadline> time_limit_;    // of the job, before its allocation ends; empty once it is reached
  std::optional<Deadline> commit_limit_;  // of the wait for the next commit
  std::optional<TimePoint> first_sigterm_;
  std::unique_ptr<AllocationEnd> allocation_;  // null: the job is in none
};

}  // namespace hvd::launcher

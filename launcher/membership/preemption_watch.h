// Asks the user's script whether this host is about to be taken away, and reports it once. Main thread only.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "launcher/membership/polled_script.h"

namespace hvd::launcher {

inline constexpr Duration kPreemptionInterval = 2s;  // clouds announce it 30 s before, or earlier

class PreemptionWatch {
 public:
  struct Callbacks {
    std::function<void()> preempted;
    std::function<void(const std::string& line)> complaint;
  };

  // `command`: its exit code 0 announces the end of the host.
  PreemptionWatch(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval,
                  Callbacks callbacks)
      : callbacks_(std::move(callbacks)),
        script_(loop, signals, std::move(command), interval, PolledScript::Errors::part_of_output,
                {.ended = [this](const std::string& output, ExitStatus status) { on_ended(output, status); },
                 .failed = [this](const std::string& cause) { fail(cause); }}) {}

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status) { script_.child_ended(pid, status); }

 private:
  void on_ended(const std::string& output, ExitStatus status) {
    // Of a shell: 126, 127 if there is no such program.
    if (status.by_signal || status.value >= 126) {
      return fail(ending_text(status) + (output.empty() ? "" : ": " + output.substr(0, output.find('\n'))));
    }
    if (status.ok() && !std::exchange(is_preempted_, true)) callbacks_.preempted();
  }
  void fail(const std::string& cause) {
    if (std::exchange(last_complaint_, cause) == cause) return;
    callbacks_.complaint("--preemption-script " + script_.command() + ": " + cause);
  }

  const Callbacks callbacks_;
  PolledScript script_;
  bool is_preempted_ = false;
  std::string last_complaint_;
};

}  // namespace hvd::launcher

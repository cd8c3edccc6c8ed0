// Runs a shell command again and again, and reports what each run has printed and how it has ended. A command may also
// stay: it prints a line --- behind each list, which is reported at once. Main thread only.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

inline constexpr Duration kScriptTimeout = 60s;  // of one run

class PolledScript {
 public:
  struct Callbacks {
    // Its output, of which the first MB is kept.
    std::function<void(const std::string& output, ExitStatus status)> ended;
    // It could not be started, or was killed after kScriptTimeout.
    std::function<void(const std::string& cause)> failed;
    // A script that stays has printed a list. Empty: scripts may not stay.
    std::function<void(const std::string& list)> listed{};
  };

  enum class Errors { passed_on, part_of_output };  // what it writes to its standard error

  // Runs `command` at once, and then `interval` after each end of a run. Callbacks must not destroy the object.
  PolledScript(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval, Errors errors,
               Callbacks callbacks);
  // Kills the script; one that stays gets SIGTERM, and some seconds to tidy up.
  ~PolledScript();

  const std::string& command() const { return command_; }

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status);

 private:
  void on_time();
  void start_script();
  void finish_if_complete();
  void report_lists();
  void kill_script() {
    if (pid_ > 0) kill(-pid_, SIGKILL);
  }

  EventLoop& loop_;
  const SignalSource& signals_;
  const std::string command_;
  const Duration interval_;
  const Errors errors_;
  const Callbacks callbacks_;
  Timer timer_;
  pid_t pid_ = -1;  // of the script, while it runs
  std::unique_ptr<OutputPipe> output_;
  std::string text_;
  std::optional<ExitStatus> status_;
  bool has_timed_out_ = false;
  bool stays_ = false;
};

}  // namespace hvd::launcher

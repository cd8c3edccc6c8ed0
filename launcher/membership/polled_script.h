// Shell commands that hvdrun runs again and again (PolledScript), and two of the user's scripts for elastic jobs: one
// names the hosts (HostDiscovery), one announces the end of a host (PreemptionWatch). Main thread only.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/plan/hosts.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

inline constexpr Duration kScriptTimeout = 60s;  // of one run

// Runs a command again and again, and reports what each run has printed and how it has ended. A command may also stay:
// it prints a line --- behind each list, which is reported at once.
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
  bool is_watching_ = false;
};

// Parses the output of a script that names hosts, a host a line: "HOST:SLOTS" or "HOST". Throws InvalidArgument.
std::vector<HostSlots> parse_discovered_hosts(std::string_view text);

// Asks the user's script which hosts an elastic job may use, and reports what it prints when that has changed. A script
// that fails or hangs changes nothing, and is reported once. A script may stay and print a list whenever the hosts
// change, each with a line --- behind it.
class HostDiscovery {
 public:
  struct Callbacks {
    std::function<void(const std::vector<HostSlots>& hosts)> found;  // other hosts than the last time, or other slots
    std::function<void(const std::string& line)> warning;
  };

  // Runs `command` by a shell at once, and then `interval` after each end of a run.
  HostDiscovery(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval,
                Callbacks callbacks);

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status) { script_.child_ended(pid, status); }

 private:
  void on_ended(const std::string& output, ExitStatus status);
  void on_list(const std::string& output);
  void fail(const std::string& cause);

  const Callbacks callbacks_;
  PolledScript script_;
  std::optional<std::vector<HostSlots>> last_;
  std::string last_warning_;
};

inline constexpr Duration kPreemptionInterval = 2s;  // clouds announce it 30 s before, or earlier

// Asks the user's script whether this host is about to be taken away, and reports it once.
class PreemptionWatch {
 public:
  struct Callbacks {
    std::function<void()> preempted;
    std::function<void(const std::string& line)> warning;
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
    if (std::exchange(last_warning_, cause) == cause) return;
    callbacks_.warning("--preemption-script " + script_.command() + ": " + cause);
  }

  const Callbacks callbacks_;
  PolledScript script_;
  bool is_preempted_ = false;
  std::string last_warning_;
};

}  // namespace hvd::launcher

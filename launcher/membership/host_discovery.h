// Asks the user's script which hosts an elastic job may use: runs it again and again, and reports what it prints when
// that has changed. A script that fails or hangs changes nothing, and is reported once. Main thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/plan/hosts.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

inline constexpr Duration kDiscoveryTimeout = 60s;  // of one run of the script

// Parses the script's output, a host a line: "HOST:SLOTS" or "HOST". Throws InvalidArgument.
std::vector<HostSlots> parse_discovered_hosts(std::string_view text);

class HostDiscovery {
 public:
  struct Callbacks {
    std::function<void(const std::vector<HostSlots>& hosts)> found;  // other hosts than the last time, or other slots
    std::function<void(const std::string& line)> complaint;
  };

  // Runs `command` by a shell at once, and then `interval` after each end of a run.
  HostDiscovery(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval,
                Callbacks callbacks);
  ~HostDiscovery() { kill_script(); }

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status);

 private:
  void on_time();
  void start_script();
  void finish_if_complete();
  void fail(const std::string& cause);
  void kill_script() {
    if (pid_ > 0) kill(-pid_, SIGKILL);
  }

  EventLoop& loop_;
  const SignalSource& signals_;
  const std::string command_;
  const Duration interval_;
  const Callbacks callbacks_;
  Timer timer_;
  pid_t pid_ = -1;  // of the script, while it runs
  std::unique_ptr<OutputPipe> output_;
  std::string text_;
  std::optional<ExitStatus> status_;
  bool has_timed_out_ = false;
  std::optional<std::vector<HostSlots>> last_;
  std::string last_complaint_;
};

}  // namespace hvd::launcher

// Asks the user's script which hosts an elastic job may use, and reports what it prints when that has changed. A script
// that fails or hangs changes nothing, and is reported once. A script may stay and print a list whenever the hosts
// change, each with a line --- behind it. Main thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "launcher/membership/polled_script.h"
#include "launcher/plan/hosts.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

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

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status) { script_.child_ended(pid, status); }

 private:
  void on_ended(const std::string& output, ExitStatus status);
  void on_list(const std::string& output);
  void fail(const std::string& cause);

  const Callbacks callbacks_;
  PolledScript script_;
  std::optional<std::vector<HostSlots>> last_;
  std::string last_complaint_;
};

}  // namespace hvd::launcher

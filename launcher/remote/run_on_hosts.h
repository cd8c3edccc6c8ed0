// A job whose ranks run on several hosts: hvdrun starts an agent on each, and tells it what to do.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/cli/job_layout.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

struct HostsToUse {
  struct Entry {
    std::string name;           // as the user calls it
    std::string start_command;  // of a shell, which starts an agent there
    bool is_here = false;       // it is this machine
  };
  std::vector<Entry> hosts;
  std::vector<std::string> interfaces;  // empty: all
  Duration lease{}, grace{}, start_timeout{};
  bool verbose = false;
  // What runs where, once all hosts have come; a plan for each, which may have no ranks. Throws InvalidArgument.
  std::function<std::vector<HostPlan>(const std::vector<HostDescription>&)> assign;
};

// Returns hvdrun's exit code when nothing of the job is left anywhere. Throws Error if hosts cannot be reached.
int run_on_hosts(JobPlan plan, HostsToUse hosts, SignalSource& signals);

// `hvdrun agent`: does what is on its standard input. Returns its exit code.
int run_agent(SignalSource& signals);

}  // namespace hvd::launcher

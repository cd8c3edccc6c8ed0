// Runs a job whose ranks are on several hosts: hvdrun starts an agent on each, and controls the job through them.
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
    std::string start_command;  // the shell command that starts an agent there
    bool is_here = false;       // whether it is this machine
  };
  std::vector<Entry> hosts;
  std::vector<std::string> interfaces;  // empty: all
  Duration lease{}, grace{}, start_timeout{};
  bool verbose = false;
  // Called when all agents have attached; returns a plan per host, which may have no ranks. Throws InvalidArgument.
  std::function<std::vector<HostPlan>(const std::vector<HostDescription>&)> assign;
};

// Returns hvdrun's exit code when no process of the job is left on any host; 1 if a host cannot be reached.
int run_on_hosts(JobPlan plan, HostsToUse hosts, SignalSource& signals);

// `hvdrun agent`: reads its bootstrap message from standard input and runs the agent. Returns its exit code.
int run_agent(SignalSource& signals);

}  // namespace hvd::launcher

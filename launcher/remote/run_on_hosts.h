// Runs a job whose ranks are on several hosts: hvdrun starts an agent on each, and controls the job through them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "launcher/plan/host_resources.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/start_command.h"

namespace hvd::launcher {

struct HostsToUse {
  struct Entry {
    std::string name;           // as the user calls it
    std::string start_command;  // the shell command that starts an agent there
    bool is_here = false;       // whether it is this machine
  };
  std::vector<Entry> hosts;
  AgentOptions agents;
  // Called when all agents have attached; returns a plan per host, which may have no ranks. Throws InvalidArgument.
  std::function<std::vector<HostPlan>(const std::vector<HostDescription>&)> assign;
};

// Returns hvdrun's exit code when no process of the job is left on any host; 1 if a host cannot be reached.
int run_on_hosts(JobOptions options, HostsToUse hosts, SignalSource& signals);

// The hosts of an elastic job. Its agents are started one by one, by the host that the user or the script names.
struct ElasticHosts {
  std::vector<HostSlots> fixed;
  std::string discovery_script;  // a shell command; empty: the hosts are fixed
  Duration discovery_interval{};
  AgentOptions agents;
  // The shell command that starts an agent on the host. Throws InvalidArgument.
  std::function<std::string(const HostSlots&)> start_command;
  // The plan of a host whose ranks are its slots. Throws InvalidArgument.
  std::function<HostPlan(const HostSlots&, const HostDescription&)> plan;
};

// Returns hvdrun's exit code when no process of the job is left on any host that can be reached.
int run_elastic(const JobOptions& options, ElasticHosts hosts, SignalSource& signals);

// `hvdrun agent`: reads its bootstrap message from standard input and runs the agent. Returns its exit code.
// `exits_when_preempted`: it ends when its host is preempted and the ranks there have left, instead of with the job.
int run_agent(SignalSource& signals, bool exits_when_preempted);

}  // namespace hvd::launcher

// Computes the hosts of a job and the ranks on each from its command line. Pure, except for LayoutInput's functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.h"
#include "launcher/plan/host_resources.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/slots.h"

namespace hvd::launcher {

struct JobLayout {
  struct Pool {                    // hosts that some of the programs share
    std::vector<int> hosts;        // numbers in the list below
    std::vector<HostSlots> slots;  // of each, in this pool
    bool limited = true;           // false: this machine, where -np alone decides the number of ranks
  };
  std::vector<HostSlots> hosts;  // of the job, each once
  std::vector<bool> is_here;     // by host: whether it is this machine
  std::vector<Pool> pools;
  std::vector<int> pool_of;  // by program
  std::string hosts_from;    // "-H", ...; empty: no hosts are named
  bool by_slurm = false;     // all hosts are in Slurm's allocation

  bool all_here() const;
};

struct LayoutInput {
  const Environment& environment;
  std::function<std::string(const std::string& path)> read_file;
  std::function<bool(const std::string& host)> is_here;
  std::string hostname;
};

// Throws InvalidArgument.
JobLayout lay_out(const CommandLine& line, const LayoutInput& input);

// Plans each host; some may have no ranks, or no processes at all. `programs`: as in `line`; `facts`: by host. Throws
// InvalidArgument.
std::vector<HostPlan> plan_hosts(const JobLayout& layout, const CommandLine& line, std::vector<HostDescription> facts,
                                 const std::vector<ProgramPlan>& programs);

// The slots of hosts for which no number is given.
SlotsRule slots_rule(const PlacementOptions& placement);

}  // namespace hvd::launcher

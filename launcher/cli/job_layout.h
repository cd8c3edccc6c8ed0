// What a command line comes to: the hosts of the job, and what runs on which. Pure, but for what it is lent.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.h"
#include "launcher/job/host.h"
#include "launcher/plan/describe_local_host.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/slots.h"

namespace hvd::launcher {

struct JobLayout {
  struct Pool {                    // hosts that some of the programs share
    std::vector<int> hosts;        // numbers in the list below
    std::vector<HostSlots> slots;  // of each, in this pool
    bool limited = true;           // else this machine, with as many ranks as -np says
  };
  std::vector<HostSlots> hosts;  // of the job, each once
  std::vector<bool> is_here;     // by host: it is this machine
  std::vector<Pool> pools;
  std::vector<int> pool_of;  // by program
  std::string hosts_from;    // "-H", ...; empty: nobody has named any
  bool by_slurm = false;     // Slurm has allocated them

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

// By host: its ranks, which may be none. `programs` and `facts` as in the line and in the layout. Throws
// InvalidArgument.
std::vector<HostPlan> plan_hosts(const JobLayout& layout, const CommandLine& line, std::vector<HostDescription> facts,
                                 const std::vector<ProgramPlan>& programs);

// The slots of hosts for which nobody has given a number.
SlotsRule slots_rule(const CommandLine& line);

}  // namespace hvd::launcher

// Reads the hosts that a batch system (Slurm, LSF, PBS) has allocated to the job in which hvdrun was started. Pure,
// except for the files that some of them write.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/hosts.h"
#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

enum class BatchSystem { slurm, lsf, pbs, hostfile };  // hostfile: Kubernetes's mpi-operator and the like

struct Allocation {
  BatchSystem system = BatchSystem::slurm;
  std::string source;  // for messages: "Slurm's allocation (SLURM_JOB_NODELIST)"
  std::vector<HostSlots> hosts;
};

// Returns the allocation to use if neither -H nor --hostfile is given; empty if there is none. Throws InvalidArgument
// for malformed variables; exceptions of `read_file` propagate.
//
// The caller ignores an allocation that consists of this machine alone: it does not limit the number of ranks.
std::optional<Allocation> read_allocation(const Environment& environment,
                                          const std::function<std::string(const std::string& path)>& read_file);

// Expands Slurm's "node[08-10,12],login". Throws InvalidArgument, also for more than kMaxSlots hosts.
std::vector<std::string> expand_nodelist(std::string_view text);

}  // namespace hvd::launcher

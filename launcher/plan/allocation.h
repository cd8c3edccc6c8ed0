// The hosts that a batch system has given to the job in which hvdrun was started. Pure, but for the files that some of
// them write.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/hosts.h"
#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

enum class BatchSystem { slurm, lsf, pbs, hostfile };  // hostfile: of Kubernetes's mpi-operator, and the like

struct Allocation {
  BatchSystem system = BatchSystem::slurm;
  std::string source;  // for messages: "Slurm's allocation (SLURM_JOB_NODELIST)"
  std::vector<HostSlots> hosts;
};

// What counts where neither -H nor --hostfile is given; empty: nobody has allocated anything. Throws InvalidArgument
// for what cannot be understood, and passes on what `read_file` throws.
//
// An allocation of this machine alone is for the caller to leave aside: there, as many ranks may be started as
// anywhere.
std::optional<Allocation> read_allocation(const Environment& environment,
                                          const std::function<std::string(const std::string& path)>& read_file);

// "node[08-10,12],login" in full. Throws InvalidArgument, also if it is more than kMaxSlots hosts.
std::vector<std::string> expand_nodelist(std::string_view text);

}  // namespace hvd::launcher

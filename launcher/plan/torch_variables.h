// Sets the environment variables with which torchrun describes a process's place in the job (RANK, MASTER_ADDR, ...),
// for PyTorch and the libraries on top of it. They are set for every rank and override existing values. Pure.
//
// HVD_TORCH_VARIABLES lists the ones that hvdrun has set, so that a rank is not mistaken for one of torchrun, and a job
// started within a job does not report them as the user's values being replaced.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// Also removes torchrun's other variables, which refer to the store of another job.
void set_torch_variables(Environment& environment, const RankPlace& place, const HostRendezvous& rendezvous);

// Keeps the user's choice, -x MASTER_ADDR and -x MASTER_PORT.
void keep_chosen_master(Environment& environment, const Environment& exports);

// Sets OMP_NUM_THREADS, unless it is set, to an equal share of the host's CPUs for each of several ranks that are not
// bound. Each rank would else start a thread per CPU, and these would spin waiting for one another. (torchrun sets 1.)
void share_openmp_threads(Environment& environment, int local_size, std::size_t cpus);

// The variables of an environment that the job replaces with its own values, as "NAME=value NAME=value"; empty if none.
std::string replaced_torch_variables(const Environment& environment, const Environment& exports);

}  // namespace hvd::launcher

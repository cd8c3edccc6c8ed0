// The variables by which PyTorch's launcher tells a process its place, and which PyTorch and what is built on it read:
// set for every rank, whatever was there. Pure.
//
// HVD_TORCH_VARIABLES says which of them are ours, so that nobody takes a rank for torchrun's, and a job within a job
// knows that nothing of the user's is replaced.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// Takes away what torchrun has left besides: it speaks of a store that is not this job's.
void set_torch_variables(Environment& environment, const RankPlace& place, const HostRendezvous& rendezvous);

// -x MASTER_ADDR and -x MASTER_PORT are somebody's choice for this job, and hold.
void keep_chosen_master(Environment& environment, const Environment& exports);

// OMP_NUM_THREADS, unless it is set: an equal share of the host's CPUs for each of several ranks that are not bound.
// Each would else start a thread for every CPU, and they would spin for one another. (torchrun sets 1.)
void share_openmp_threads(Environment& environment, int local_size, std::size_t cpus);

// Which of them an environment has from elsewhere, and the job replaces, as "NAME=value NAME=value"; empty: none.
std::string replaced_torch_variables(const Environment& environment, const Environment& exports);

}  // namespace hvd::launcher

// Runs a job whose ranks are all on this machine.
#pragma once

#include "launcher/job/job.h"
#include "launcher/processes/keeper.h"

namespace hvd::launcher {

// Serves the job's store with the job key of the plan; starts the ranks through the keeper. Returns hvdrun's exit code
// when no process of the job is left. Throws Error if the output directory cannot be written.
int run_here(JobPlan plan, HostPlan host, SignalSource& signals, Keeper& keeper);

}  // namespace hvd::launcher

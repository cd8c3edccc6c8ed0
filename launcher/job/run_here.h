// A job whose ranks all run on this machine.
#pragma once

#include "launcher/job/job.h"
#include "launcher/processes/keeper.h"

namespace hvd::launcher {

// Hosts the job's store, whose key the plan has; the ranks are the keeper's. Returns hvdrun's exit code when nothing of
// the job is left. Throws Error if the output directory cannot be written.
int run_here(JobPlan plan, HostPlan host, SignalSource& signals, Keeper& keeper);

}  // namespace hvd::launcher

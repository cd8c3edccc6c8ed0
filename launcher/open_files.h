// The descriptors of hvdrun, or of an agent: how many it may have, and how many the ranks of its host take.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <string>

#include "launcher/host.h"

namespace hvd::launcher {

// As many as are allowed. Returns the limit as it was, for the ranks: some programs misbehave with a high one.
rlimit raise_open_files();

// Descriptors that a host's ranks take while they run, and one more than that for a moment each.
std::size_t open_files_of(const HostPlan& plan);

// Throws Internal that says how many are missing: better than ranks that are refused in the middle of their init.
void check_open_files(const HostPlan& plan);

}  // namespace hvd::launcher

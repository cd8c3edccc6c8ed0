// Which processes descend from which, as /proc says. For finding what a job has left behind: read when a job ends,
// never while it runs.
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/base/process_stat.h"

namespace hvd::launcher {

// All processes of this machine that /proc shows.
std::vector<ProcessEntry> list_processes();

// Children, their children, and so on, without the subtrees that begin at a pid in `except`. Pure.
std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except);

}  // namespace hvd::launcher

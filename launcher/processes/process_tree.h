// Reads the process tree from /proc, to find the processes that a job has left behind. Read when a job ends, never
// while it runs.
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/base/clock.h"
#include "core/base/process.h"

namespace hvd::launcher {

// All processes of this machine that /proc shows.
std::vector<ProcessEntry> list_processes();

// All descendants of `root`, without the subtrees whose roots are in `except`. Pure.
std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except);

// The descendants of this process that run or are stopped, without the subtrees of `except`.
std::vector<ProcessEntry> living_descendants(const std::vector<pid_t>& except);

// How long processes may take to end after SIGKILL.
inline constexpr Duration kKillingTime = std::chrono::seconds(5);

// Sends SIGKILL to the living descendants until two scans in a row find none. Returns false if the deadline passes
// first. The caller must be a subreaper: orphans that another process adopts are not found.
bool kill_descendants(const std::vector<pid_t>& except, Deadline deadline);

}  // namespace hvd::launcher

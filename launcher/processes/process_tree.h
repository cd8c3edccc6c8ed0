// Which processes descend from which, as /proc says. For finding what a job has left behind: read when a job ends,
// never while it runs.
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/base/clock.h"
#include "core/base/process_stat.h"

namespace hvd::launcher {

// All processes of this machine that /proc shows.
std::vector<ProcessEntry> list_processes();

// Children, their children, and so on, without the subtrees that begin at a pid in `except`. Pure.
std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except);

// The descendants of this process that run or are stopped, without the subtrees of `except`.
std::vector<ProcessEntry> living_descendants(const std::vector<pid_t>& except);

// How long processes may take to end after SIGKILL.
inline constexpr Duration kKillingTime = std::chrono::seconds(5);

// SIGKILL to these, and again until two looks in a row have found none. Returns whether that was before the deadline.
// For a subreaper: an orphan that becomes anybody else's child escapes.
bool kill_descendants(const std::vector<pid_t>& except, Deadline deadline);

}  // namespace hvd::launcher

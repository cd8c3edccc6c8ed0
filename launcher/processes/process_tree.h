// Finds, signals and kills the processes of a job on this host, with what they have left behind: the process tree, read
// from /proc when a job ends, never while it runs.
#pragma once

#include <sys/types.h>

#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/process.h"
#include "launcher/processes/child_process.h"

namespace hvd::launcher {

// Reads the process tree from /proc, to find the processes that a job has left behind. Read when a job ends, never
// while it runs.
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

// The processes of a job on this host, as the keeper (keeper.h) sees them: the ranks, which are its children, and their
// descendants. Used by the keeper process only.
//
// The keeper is the subreaper of all of them: a process whose parent has ended becomes the keeper's child, so that "no
// child is left" means "nothing of the job is left", daemons included. A pid is signalled only until it is reaped here,
// so a reused pid is never signalled.
class JobProcesses {
 public:
  void add_rank(pid_t pid) { ranks_.insert(pid); }
  // Returns the ranks that have ended since the last call. Reaps all other ended children, too.
  std::vector<std::pair<pid_t, ExitStatus>> reap();

  // Signals the process groups of the ranks that still run.
  void signal_ranks(int signal) const;
  // Signals these groups and every other descendant of the ranks.
  void signal_all(int signal) const;
  // Does not read /proc.
  bool any_left() const;
  // The processes that run or are stopped; zombies are left out.
  std::vector<pid_t> list_left() const;

 private:
  std::set<pid_t> ranks_;  // not reaped yet
};

}  // namespace hvd::launcher

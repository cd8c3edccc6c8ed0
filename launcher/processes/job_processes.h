// The processes of a job on this host, as the keeper (keeper.h) sees them: the ranks, which are its children, and their
// descendants. Used by the keeper process only.
//
// The keeper is the subreaper of all of them: a process whose parent has ended becomes the keeper's child, so that "no
// child is left" means "nothing of the job is left", daemons included. A pid is signalled only until it is reaped here,
// so a reused pid is never signalled.
#pragma once

#include <sys/types.h>

#include <set>
#include <utility>
#include <vector>

#include "launcher/processes/exit_status.h"

namespace hvd::launcher {

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

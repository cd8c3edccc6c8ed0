// The processes of a job on this host, as the keeper (keeper.h) sees them: the ranks, which are its children, and
// whatever they have started.
//
// The keeper is the subreaper of all of them: a process whose parent has ended becomes the keeper's child, so that "no
// child is left" means "nothing of the job is left", daemons included. A pid is signalled only until it is reaped here,
// so that it cannot be somebody else's.
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
  // The ranks that have ended since the last call. Everything else that has ended is reaped, too.
  std::vector<std::pair<pid_t, ExitStatus>> reap();

  // To the process groups of the ranks that still run.
  void signal_ranks(int signal) const;
  // To these, and to every other process that descends from the ranks.
  void signal_all(int signal) const;
  // Does not read /proc.
  bool any_left() const;
  // Those that run or are stopped.
  std::vector<pid_t> list_left() const;

 private:
  std::set<pid_t> ranks_;  // that were not reaped
};

}  // namespace hvd::launcher

// The processes of a job on this host: the ranks, and whatever they have started. Main thread only.
//
// hvdrun is the subreaper of all of them: a process whose parent has ended becomes hvdrun's child, so that "no child is
// left" means "nothing of the job is left", daemons included.
#pragma once

#include <sys/types.h>

#include <map>
#include <vector>

#include "launcher/exit_status.h"

namespace hvd::launcher {

class JobProcesses {
 public:
  // Children that this process has already (a shell may start some and then exec hvdrun) are none of ours.
  JobProcesses();

  void add_rank(int rank, pid_t pid) { ranks_[pid] = rank; }

  struct EndedRank {
    int rank;
    pid_t pid;
    ExitStatus status;
  };
  // Everything that has ended since the last call; only ranks are reported.
  std::vector<EndedRank> reap();

  // To the process groups of the ranks that still run.
  void signal_ranks(int signal) const;
  // To these, and to every other process that descends from the ranks.
  void signal_all(int signal) const;
  // Reads /proc only where there is no simpler answer.
  bool any_left() const;
  // Those that run (or are stopped); without hvdrun's own children of before.
  std::vector<pid_t> list_left() const;

 private:
  std::map<pid_t, int> ranks_;    // that were not reaped, so that their process groups cannot be somebody else's
  std::vector<pid_t> inherited_;  // children of before
};

}  // namespace hvd::launcher

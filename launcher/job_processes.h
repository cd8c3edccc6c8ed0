// The processes of a job on this host: the ranks, and whatever they have started. Main thread only.
//
// hvdrun is the subreaper of all of them: a process whose parent has ended becomes hvdrun's child, so that "no child is
// left" means "nothing of the job is left", daemons included.
#pragma once

#include <sys/types.h>

#include <map>
#include <utility>
#include <vector>

#include "launcher/exit_status.h"

namespace hvd::launcher {

// Every child of this process that has ended since the last call, and how.
std::vector<std::pair<pid_t, ExitStatus>> reap_children();

class JobProcesses {
 public:
  // Children that this process has already (a shell may start some and then exec hvdrun) are none of ours.
  JobProcesses();

  void add_rank(int rank, pid_t pid) { ranks_[pid] = rank; }
  // A child of this process that does not belong to the job.
  void leave_alone(pid_t pid) { others_.push_back(pid); }

  struct Ended {
    int rank;  // -1: another child
    pid_t pid;
    ExitStatus status;
  };
  // Every child that has ended since the last call, adopted ones too.
  std::vector<Ended> reap();

  // To the process groups of the ranks that still run.
  void signal_ranks(int signal) const;
  // To these, and to every other process that descends from the ranks.
  void signal_all(int signal) const;
  // Reads /proc only where there is no simpler answer.
  bool any_left() const;
  // Those that run (or are stopped); without hvdrun's own children of before.
  std::vector<pid_t> list_left() const;

 private:
  std::map<pid_t, int> ranks_;  // that were not reaped, so that their process groups cannot be somebody else's
  std::vector<pid_t> others_;   // children that do not belong to the job: of before, or named since
};

}  // namespace hvd::launcher

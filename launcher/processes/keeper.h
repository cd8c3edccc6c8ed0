// hvdrun's end of its keeper: a process on each host that starts the ranks, is their subreaper, and outlives hvdrun (or
// the agent) by a moment, so that nothing of the job is left behind however hvdrun ends.
//
// The keeper is a child of hvdrun that is forked before any thread exists; it has a process group of its own, and no
// descriptor but its end of a socket pair and those that whoever started hvdrun meant for the ranks. It forks and
// executes the ranks on hvdrun's requests, reaps them, signals them, and sees what is left of them: whatever they
// start, daemons with an empty environment included, remains a descendant of the keeper. Once hvdrun is gone, or has
// been silent for the lease (it is stopped, and is killed first), the keeper kills its descendants until none is left
// or 5 s have passed, and ends. If the keeper itself is killed, the ranks die with it, and what they leave becomes
// hvdrun's: see kill_orphans().
//
// Main thread only.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/net/socket.h"
#include "launcher/loop/signal_source.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/exit_status.h"
#include "launcher/processes/keeper_messages.h"

namespace hvd::launcher {

class Keeper {
 public:
  // Starts the process: before any thread exists. Makes this process a subreaper, too. Throws Internal.
  explicit Keeper(const SignalSource& signals);
  // Whatever is left of the job is killed; waits until it is, for a second at most.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  pid_t pid() const { return pid_; }

  // Starts a rank. Throws Error; its text is for the user.
  pid_t start(int rank, const ChildStart& start);
  void signal_ranks(int signal);
  // To everything that descends from the ranks, too. After SIGKILL that includes what it orphans.
  void signal_all(int signal);

  // Lets it go on if somebody has stopped it: nobody has a reason to.
  void resume() const;

  // From now on renew_lease() is called several times in its length. Without a lease only the end of this process
  // counts.
  void set_lease(Duration length);
  void renew_lease();

  // Readable when there is something to receive.
  int fd() const { return socket_.get(); }
  // False once the keeper has closed its end; SIGCHLD says how it ended.
  bool receive();
  struct Ended {
    int rank;
    ExitStatus status;
  };
  // Ranks that have ended since the last call, as received.
  std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }
  // Whether anything is left of what was started, as received.
  bool any_left() const { return any_left_; }
  // Those that run or are stopped. Waits a second at most for the answer; empty without one.
  std::vector<pid_t> list_left();

  // A child of this process that does not belong to the job. Children that it has had before the keeper do not either.
  void leave_alone(pid_t pid) { others_.push_back(pid); }
  // After the keeper was reaped: SIGKILL to what has become this process's, 5 s at most. Returns whether nothing of the
  // job is left.
  bool kill_orphans();

 private:
  bool send(const KeeperRequest& request);
  bool send(const KeeperRequest& request, Deadline deadline, const std::vector<int>& descriptors);
  KeeperReport await(KeeperReport::Kind expected, Deadline deadline);

  FileDescriptor socket_;
  pid_t pid_ = -1;  // -1: reaped
  bool closed_ = false;
  std::map<pid_t, int> ranks_;  // that have not ended, as received
  std::vector<Ended> ended_;
  std::optional<KeeperReport> answer_;
  bool any_left_ = false;
  std::vector<pid_t> others_;  // children that do not belong to the job
};

}  // namespace hvd::launcher

// The client of the supervisor, a process on each host that starts the ranks, is their subreaper, and outlives hvdrun
// (or the agent) briefly, so that nothing of the job is left behind however hvdrun ends. Main thread only.
//
// The supervisor is a child of hvdrun, forked before any thread exists. It has its own process group, and no
// descriptors except its end of a socket pair and those that hvdrun inherited for the ranks. It forks and executes the
// ranks on hvdrun's requests, reaps them, signals them, and knows what is left of them: all processes that the ranks
// start, daemons with an empty environment included, remain descendants of the supervisor. Once hvdrun has ended, or
// has been silent for the lease (then it is stopped, and is killed first), the supervisor kills its descendants until
// none is left or 5 s have passed, and exits. If the supervisor itself is killed, the ranks are killed with it, and
// their orphans become children of hvdrun: see kill_orphans().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/net/socket.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"
#include "launcher/processes/supervisor_messages.h"

namespace hvd::launcher {

inline constexpr const char* kSupervisorName = "hvd-supervisor";  // as ps shows it

class Supervisor {
 public:
  // Forks the supervisor; must be called before any thread exists. Makes this process a subreaper, too. Throws
  // Internal.
  explicit Supervisor(const SignalSource& signals);
  // Makes the supervisor kill what is left of the job, and waits for it, one second at most.
  ~Supervisor();

  pid_t pid() const;

  // Starts a rank. Throws Error with a text for the user.
  pid_t start(int rank, const ChildStart& start);
  void signal_ranks(int signal);
  // Signals all descendants of the ranks, too. SIGKILL also reaches the processes that it orphans.
  void signal_all(int signal);

  // Sends SIGCONT to the supervisor, which must never stay stopped: one system call, without effect on a running
  // supervisor.
  void resume() const;

  // In an elastic job, where the others go on: what a rank that ends leaves in its process group is killed.
  void end_groups();
  // Kills the process group of one rank; does nothing if the rank has ended.
  void kill_rank(pid_t pid);

  // From now on the caller must renew the lease several times. Without one, the supervisor only reacts to the caller's
  // end.
  void set_lease(Duration length);
  // If the socket is full, the renewal is dropped: the supervisor has older packets to read, which renew the lease,
  // too.
  void renew_lease();

  // Readable when receive() has something to read.
  int fd() const;
  // Returns false once the supervisor has closed its end; its exit status is reaped on SIGCHLD.
  bool receive();
  struct Ended {
    int rank;
    ExitStatus status;
  };
  // Returns the ranks that have ended since the last call, according to the reports received.
  std::vector<Ended> take_ended();
  // Whether any process of the job is left, according to the reports received.
  bool any_left() const;
  // The processes that run or are stopped. Waits one second at most for the answer; empty without one.
  std::vector<pid_t> list_left();

  // Excludes a child of this process that does not belong to the job. Children older than the supervisor are excluded,
  // too.
  void leave_alone(pid_t pid);
  // After the supervisor was reaped: kills what this process inherits from it, for 5 s; returns whether nothing is
  // left.
  bool kill_orphans();

 private:
  bool send(const SupervisorRequest& request);
  bool send(const SupervisorRequest& request, Deadline deadline, const std::vector<int>& descriptors);
  // Makes a request's answer the one that is awaited; returns the request's number.
  std::uint32_t expect_answer();
  SupervisorReport await(SupervisorReport::Kind expected, Deadline deadline);
  // The answer to a request that was given up: a process that has been started all the same is killed.
  void discard(const SupervisorReport& late_answer);

  FileDescriptor socket_;
  pid_t pid_ = -1;  // -1: the supervisor is reaped
  bool closed_ = false;
  std::map<pid_t, int> ranks_;  // not reported as ended yet
  std::vector<Ended> ended_;
  std::uint32_t last_request_ = 0;  // of those that are answered
  std::uint32_t awaited_ = 0;       // the request whose answer is awaited; 0: none
  std::optional<SupervisorReport> answer_;
  bool any_left_ = false;
  std::vector<pid_t> others_;  // children that do not belong to the job
};

// The main loop of the supervisor process: starts the processes that hvdrun requests, reports those that have ended,
// and kills what is left once hvdrun is gone. Single-threaded. Called in a process just forked from hvdrun, whose pid
// is `hvdrun`, with the supervisor's end of the socket pair. Takes over the process and ends it with _exit(): no
// destructors or at-exit handlers of hvdrun run.
[[noreturn]] void run_supervisor(FileDescriptor socket, const SignalSource& signals, pid_t hvdrun);

}  // namespace hvd::launcher

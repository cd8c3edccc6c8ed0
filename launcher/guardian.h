// A tiny process that outlives hvdrun, or an agent, by a moment and leaves nothing of its job behind, however hvdrun
// ends: killed by SIGKILL it can clean up nothing itself. The mark travels over the socket pair alone: it stands on no
// command line and in no environment but the job's.
//
// The guardian is nobody's child, has a session of its own and no descriptor but its end of a socket pair. It sleeps
// until hvdrun says something, is gone, or has been silent for the lease (it is stopped). In the last two cases it
// sends SIGKILL to every process of this user that carries the job's mark in its environment, until none is left or 5 s
// have passed, and then ends. A silent hvdrun is killed first. /proc is read only then.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/net/socket.h"

namespace hvd::launcher {

class Guardian {
 public:
  // Starts the process: before any thread exists and before this process becomes a subreaper (JobProcesses).
  // Throws Internal.
  Guardian();
  // Dismisses it: nothing is killed.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // From now on. `mark` is what the environment of all processes to kill has, and no other's (marked_processes.h):
  // "HVD_JOB_KEY=<key>". Without a lease only the end of this process counts. Throws
  // InvalidArgument if the mark is empty or longer than kMaxMarkBytes.
  void guard(const std::string& mark, std::optional<Duration> lease);

  // With a lease: several times in it. Does not block.
  void tick();

  pid_t pid() const { return pid_; }

 private:
  void say(const std::string& message);

  FileDescriptor socket_;
  pid_t pid_ = -1;
};

}  // namespace hvd::launcher

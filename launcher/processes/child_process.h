// Starts a child process: a rank (in the keeper, keeper.h), or the command that starts an agent on another host.
//
// Each child leads its own process group, so that Ctrl-C at the terminal reaches it once, through hvdrun, and that its
// children can be signalled with it. It stays in hvdrun's session (sched_yield does not cross sessions where
// sched_autogroup is on). It is killed when the process that started it ends, even by SIGKILL.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/net/socket.h"
#include "launcher/loop/signal_source.h"
#include "launcher/processes/exit_status.h"

namespace hvd::launcher {

struct InheritedDescriptor {
  int fd = -1;      // borrowed; close-on-exec in this process
  int number = -1;  // its number in the child: above standard error, unique
};

struct ChildStart {
  std::string program;                   // path of the executable
  std::vector<std::string> arguments;    // argv, beginning with the name as typed
  std::vector<std::string> environment;  // "NAME=value"
  std::string working_directory;         // empty: hvdrun's
  std::vector<int> cpus;                 // ascending; empty: hvdrun's affinity
  int standard_input = -1;               // borrowed, as are the next two
  int standard_output = -1;
  int standard_error = -1;
  std::vector<InheritedDescriptor> inherited;  // besides this process's descriptors that are not close-on-exec
  rlimit open_files{};                         // RLIMIT_NOFILE as hvdrun was started with it
};

// Returns the reading and the writing end, both close-on-exec. Throws Error.
std::pair<FileDescriptor, FileDescriptor> make_pipe();

// Call it on a thread that lives as long as the job: the child is killed when this thread ends (PR_SET_PDEATHSIG).
// Throws Error if fork fails. If exec fails, the child writes the error to its standard error and exits with code 126
// or 127.
pid_t start_child(const ChildStart& start, const SignalSource& signals);

// Reaps the children that have ended since the last call; returns their pids and exit statuses.
std::vector<std::pair<pid_t, ExitStatus>> reap_children();

// Whether this process has any children, zombies included.
bool has_children();

}  // namespace hvd::launcher

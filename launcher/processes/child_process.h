// Starts a process: a rank (in the keeper, keeper.h), or the command that starts an agent on another host.
//
// Each leads a process group of its own, so that Ctrl-C at the terminal reaches it once, through hvdrun, and that
// its children can be signalled with it; it stays in hvdrun's session (sched_yield does not cross sessions where
// sched_autogroup is on). It dies with the process that has started it, even if that is killed by SIGKILL.
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
  int fd = -1;      // borrowed; closes on exec here
  int number = -1;  // under which the child has it: above standard error, each once
};

struct ChildStart {
  std::string program;                   // the file
  std::vector<std::string> arguments;    // with the name as typed first
  std::vector<std::string> environment;  // "NAME=value"
  std::string working_directory;         // empty: hvdrun's own
  std::vector<int> cpus;                 // ascending; empty: those that hvdrun may use
  int standard_input = -1;               // borrowed, as are the next two
  int standard_output = -1;
  int standard_error = -1;
  std::vector<InheritedDescriptor> inherited;  // besides those of this process that do not close on exec
  rlimit open_files{};                         // as hvdrun found it
};

// Both ends close on exec: the reading one, the writing one. Throws Error.
std::pair<FileDescriptor, FileDescriptor> make_pipe();

// Call it on the thread that lives as long as the job: the process is killed when this thread ends. Throws Error if
// there is no process to be had. A program that cannot be executed after all says so on its standard error and exits
// with code 126 or 127.
pid_t start_child(const ChildStart& start, const SignalSource& signals);

// Every child of this process that has ended since the last call, and how.
std::vector<std::pair<pid_t, ExitStatus>> reap_children();

// Whether this process has any, zombies included.
bool has_children();

}  // namespace hvd::launcher

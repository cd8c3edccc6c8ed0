// Starts a process: a rank, or what starts an agent on another host.
//
// Each leads a process group of its own, so that Ctrl-C at the terminal reaches it once, through hvdrun, and that
// its children can be signalled with it; it stays in hvdrun's session (sched_yield does not cross sessions where
// sched_autogroup is on). It dies with hvdrun, even if that is killed by SIGKILL; the guardian then ends its children.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/net/socket.h"
#include "launcher/signal_source.h"

namespace hvd::launcher {

struct ChildStart {
  std::string program;                   // the file
  std::vector<std::string> arguments;    // with the name as typed first
  std::vector<std::string> environment;  // "NAME=value"
  std::string working_directory;         // empty: hvdrun's own
  std::vector<int> cpus;                 // empty: those that hvdrun may use
  int standard_input = 0;                // borrowed
  std::vector<int> inherited;            // borrowed; under the same numbers, though they close on exec here
  bool merge_errors = false;             // standard error goes where standard output goes
  bool keeps_orphans = false;            // what its descendants leave running becomes its child, and not our own
  rlimit open_files{};                   // as hvdrun found it
};

struct ChildProcess {
  pid_t pid = -1;
  FileDescriptor standard_output, standard_error;  // the reading ends; merged: no second one
};

// Both ends close on exec: the reading one, the writing one. Throws Error.
std::pair<FileDescriptor, FileDescriptor> make_pipe();

// Call it on the thread that lives as long as the job: the process is killed when this thread ends. Throws Error if
// there is no process or descriptor to be had. A program that cannot be executed after all says so on its standard
// error and exits with code 126 or 127.
ChildProcess start_child(const ChildStart& start, const SignalSource& signals);

}  // namespace hvd::launcher

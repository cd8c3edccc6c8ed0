// Starts processes for hvdrun, agents and the supervisor; how they ended, what they leave behind, the open files they
// need.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/process.h"
#include "core/net/socket.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

// How a process ended: with an exit code or by a signal. Pure.
struct ExitStatus {
  bool by_signal = false;
  int value = 0;  // the exit code, or the signal's number
  bool core_dumped = false;

  bool ok() const;
  // As shells report it: 128 + signal for a process that was killed.
  int exit_code() const;
  bool operator==(const ExitStatus&) const = default;
  static void fields(auto& self, const auto& each) { each(self.by_signal, self.value, self.core_dumped); }
};

// "SIGSEGV"; "signal 41" for one without a name.
std::string signal_name(int signal);

// "was killed by SIGSEGV", "ended with exit code 3".
std::string ending_text(ExitStatus status);

struct InheritedDescriptor {
  int fd = -1;      // borrowed; close-on-exec in this process
  int number = -1;  // its number in the child: above standard error, unique
  static void fields(auto& self, const auto& each) { each(self.number); }
};

// How to start a child process: a rank (in the supervisor, supervisor.h), or the command that starts an agent on
// another host. Each child leads its own process group, so that Ctrl-C at the terminal reaches it once, through hvdrun,
// and that its children can be signalled with it. It stays in hvdrun's session (sched_yield does not cross sessions
// where sched_autogroup is on). It is killed when the process that started it ends, even by SIGKILL.
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

  // Without the descriptors, except for the inherited ones' numbers, and the open-file limit, which the supervisor
  // knows.
  static void fields(auto& self, const auto& each) {
    each(self.program, self.arguments, self.environment, self.working_directory, self.cpus, self.inherited);
  }
};

// Returns the reading and the writing end, both close-on-exec. Throws Error.
std::pair<FileDescriptor, FileDescriptor> make_pipe();

// Call it on a thread that lives as long as the job: the child is killed when this thread ends (PR_SET_PDEATHSIG).
// Throws Error if fork fails. If exec fails, the child writes the error to its standard error and exits with 126, 127.
pid_t start_child(const ChildStart& start, const SignalSource& signals);

// Reaps the children that have ended since the last call; returns their pids and exit statuses.
std::vector<std::pair<pid_t, ExitStatus>> reap_children();

// Whether this process has any children, zombies included.
bool has_children();

// Raises the soft limit to the hard one. Returns the limit before the first call, for programs that are started: some
// misbehave otherwise.
rlimit raise_open_files();

// An in-memory file with these bytes, at its beginning: a process's standard input that blocks no writer, as a pipe
// would with a slow reader. Close-on-exec. Throws Internal.
FileDescriptor memory_file(std::span<const std::byte> bytes);

// The number of descriptors that hvdrun needs for these ranks while they run. `readers`: the number of ranks that read
// hvdrun's standard input; `merge_errors`: standard error shares the pipe of standard output.
std::size_t open_files_of(std::size_t ranks, std::size_t readers, bool merge_errors);

// Throws Internal, with the number needed and the limit, if the limit is too low: ranks would else fail during init.
void check_open_files(std::size_t ranks, std::size_t readers, bool merge_errors);

// All processes of this machine that /proc shows. Read when a job ends, never while it runs.
std::vector<ProcessEntry> list_processes();

// All descendants of `root`, without the subtrees whose roots are in `except`. Pure.
std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except);

// The descendants of this process that run or are stopped, without the subtrees of `except`.
std::vector<ProcessEntry> living_descendants(const std::vector<pid_t>& except);

// How long processes may take to end after SIGKILL.
inline constexpr Duration kKillingTime = std::chrono::seconds(5);

// Sends SIGKILL to the living descendants until two scans in a row find none. Returns false if the deadline passes
// first. The caller must be a subreaper: orphans that another process adopts are not found.
bool kill_descendants(const std::vector<pid_t>& except, Deadline deadline);

}  // namespace hvd::launcher

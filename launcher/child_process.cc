#include "launcher/child_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "launcher/throw_errno.h"

namespace hvd::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& entry : strings) result.push_back(const_cast<char*>(entry.c_str()));
  result.push_back(nullptr);
  return result;
}

std::vector<std::uint64_t> bits(const std::vector<int>& ascending) {
  std::vector<std::uint64_t> words;
  for (const int number : ascending) {
    const auto bit = static_cast<std::size_t>(number);
    words.resize(bit / 64 + 1);
    words.back() |= std::uint64_t{1} << (bit % 64);
  }
  return words;
}

void write_error(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody left to tell
}

[[noreturn]] void give_up(int error) {
  write_error(": ");
  write_error(strerrordesc_np(error));
  write_error("\n");
  _exit(error == ENOENT ? 127 : 126);
}

struct ChildPlan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* working_directory;           // null: as it is
  const std::vector<std::uint64_t>* cpus;  // a bit each; none: as they are
  int input, output, error;
  bool keeps_orphans;
  const std::vector<int>* inherited;
  const rlimit* open_files;
  const SignalSource* signals;
  pid_t parent;
};

// Between fork and exec other threads' locks may be held for ever: only async-signal-safe calls, no allocation.
[[noreturn]] void become_child(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);                    // hvdrun ended in the meantime
  if (plan.keeps_orphans) prctl(PR_SET_CHILD_SUBREAPER, 1);  // outlasts exec
  dup2(plan.input, STDIN_FILENO);
  dup2(plan.output, STDOUT_FILENO);
  dup2(plan.error, STDERR_FILENO);
  for (const int fd : *plan.inherited) fcntl(fd, F_SETFD, 0);
  setrlimit(RLIMIT_NOFILE, plan.open_files);
  if (!plan.cpus->empty()) {
    sched_setaffinity(0, plan.cpus->size() * 8, reinterpret_cast<const cpu_set_t*>(plan.cpus->data()));
  }
  plan.signals->restore_original();
  if (plan.working_directory != nullptr && chdir(plan.working_directory) != 0) {
    const int error = errno;
    write_error("hvdrun: cannot enter ");
    write_error(plan.working_directory);
    give_up(error);
  }
  execvpe(plan.program, plan.arguments, plan.environment);  // runs a script without a #! line, as shells do
  const int error = errno;
  write_error("hvdrun: cannot execute ");
  write_error(plan.program);
  give_up(error);
}

}  // namespace

std::pair<FileDescriptor, FileDescriptor> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

ChildProcess start_child(const ChildStart& start, const SignalSource& signals) {
  auto [output_reader, output_writer] = make_pipe();
  FileDescriptor error_reader, error_writer;
  if (!start.merge_errors) std::tie(error_reader, error_writer) = make_pipe();
  const std::vector<char*> arguments = pointers(start.arguments);
  const std::vector<char*> environment = pointers(start.environment);
  const std::vector<std::uint64_t> cpus = bits(start.cpus);
  const ChildPlan plan{.program = start.program.c_str(),
                       .arguments = arguments.data(),
                       .environment = environment.data(),
                       .working_directory = start.working_directory.empty() ? nullptr : start.working_directory.c_str(),
                       .cpus = &cpus,
                       .input = start.standard_input,
                       .output = output_writer.get(),
                       .error = start.merge_errors ? output_writer.get() : error_writer.get(),
                       .keeps_orphans = start.keeps_orphans,
                       .inherited = &start.inherited,
                       .open_files = &start.open_files,
                       .signals = &signals,
                       .parent = getpid()};
  const pid_t pid = fork();
  if (pid < 0) throw_errno("cannot start a process");
  if (pid == 0) become_child(plan);
  setpgid(pid, pid);  // here too: whoever comes first, the group exists before it is signalled
  return {.pid = pid, .standard_output = std::move(output_reader), .standard_error = std::move(error_reader)};
}

}  // namespace hvd::launcher

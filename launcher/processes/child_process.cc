#include "launcher/processes/child_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "launcher/processes/event_loop.h"

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
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nowhere to report this error
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
  const char* working_directory;           // null: unchanged
  const std::vector<std::uint64_t>* cpus;  // one bit per CPU; null: unchanged
  int input, output, error;
  InheritedDescriptor* inherited;
  std::size_t inherited_count;
  const rlimit* open_files;
  const SignalSource* signals;
  pid_t parent;
};

// Moves each descriptor to its number. A descriptor whose current number another one needs is moved away first.
void place_inherited(InheritedDescriptor* entries, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t later = i + 1; later < count; ++later) {
      if (entries[later].fd == entries[i].number) {
        entries[later].fd = fcntl(entries[later].fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      }
    }
    if (entries[i].fd == entries[i].number) {
      fcntl(entries[i].fd, F_SETFD, 0);
    } else {
      dup2(entries[i].fd, entries[i].number);
    }
  }
}

// Between fork and exec, locks of other threads may stay held forever: only async-signal-safe calls, no allocation.
[[noreturn]] void become_child(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);  // the parent ended in the meantime
  dup2(plan.input, STDIN_FILENO);
  dup2(plan.output, STDOUT_FILENO);
  dup2(plan.error, STDERR_FILENO);
  place_inherited(plan.inherited, plan.inherited_count);
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
  execvpe(plan.program, plan.arguments, plan.environment);  // also runs a script without a #! line, as shells do
  const int error = errno;
  write_error("hvdrun: cannot execute ");
  write_error(plan.program);
  give_up(error);
}

// Two shared memory files, the pipe of standard output, and the connection to the store.
constexpr std::size_t kPerRank = 4;
// Temporary descriptors: the write ends of pipes, status connections.
constexpr std::size_t kSpare = 8;

std::size_t count_open() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  return error ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

constexpr int kLookAgainMs = 1;

}  // namespace

ExitStatus ExitStatus::from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return {.by_signal = true, .value = WTERMSIG(wait_status), .core_dumped = WCOREDUMP(wait_status) != 0};
  }
  return {.by_signal = false, .value = WEXITSTATUS(wait_status), .core_dumped = false};
}

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  return abbreviation != nullptr ? std::string("SIG") + abbreviation : "signal " + std::to_string(signal);
}

std::string ending_text(ExitStatus status) {
  return status.by_signal ? "was killed by " + signal_name(status.value)
                          : "ended with exit code " + std::to_string(status.value);
}

std::pair<FileDescriptor, FileDescriptor> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

pid_t start_child(const ChildStart& start, const SignalSource& signals) {
  const std::vector<char*> arguments = pointers(start.arguments);
  const std::vector<char*> environment = pointers(start.environment);
  const std::vector<std::uint64_t> cpus = bits(start.cpus);
  std::vector<InheritedDescriptor> inherited = start.inherited;
  const ChildPlan plan{.program = start.program.c_str(),
                       .arguments = arguments.data(),
                       .environment = environment.data(),
                       .working_directory = start.working_directory.empty() ? nullptr : start.working_directory.c_str(),
                       .cpus = &cpus,
                       .input = start.standard_input,
                       .output = start.standard_output,
                       .error = start.standard_error,
                       .inherited = inherited.data(),
                       .inherited_count = inherited.size(),
                       .open_files = &start.open_files,
                       .signals = &signals,
                       .parent = getpid()};
  const pid_t pid = fork();
  if (pid < 0) throw_errno("cannot start a process");
  if (pid == 0) become_child(plan);
  setpgid(pid, pid);  // as in the child, so that the group exists before it is signalled
  return pid;
}

std::vector<std::pair<pid_t, ExitStatus>> reap_children() {
  std::vector<std::pair<pid_t, ExitStatus>> result;
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    result.emplace_back(pid, ExitStatus::from_wait(status));
  }
  return result;
}

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

rlimit raise_open_files() {
  rlimit original{};
  getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

std::size_t open_files_of(const RankFiles& files) {
  return files.ranks * (files.merge_errors ? kPerRank : kPerRank + 1) + files.readers + kSpare;
}

void check_open_files(const RankFiles& files) {
  rlimit limit{};
  const std::size_t needed = count_open() + open_files_of(files);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || needed <= limit.rlim_cur) return;
  throw Internal(std::to_string(files.ranks) + " ranks on this host take " + std::to_string(needed) +
                 " open files of hvdrun, which may have " + std::to_string(limit.rlim_cur) +
                 ": raise the limit (ulimit -n), or start fewer ranks here");
}

std::vector<ProcessEntry> list_processes() {
  std::vector<ProcessEntry> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return result;
  while (const dirent* item = readdir(folder.get())) {
    if (item->d_name[0] < '1' || item->d_name[0] > '9') continue;
    if (const auto entry = read_process_stat(std::atoi(item->d_name))) result.push_back(*entry);
  }
  return result;
}

std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except) {
  std::vector<ProcessEntry> result;
  const auto add_children_of = [&](pid_t parent) {
    for (const ProcessEntry& entry : all) {
      const bool excepted = std::find(except.begin(), except.end(), entry.pid) != except.end();
      if (entry.parent == parent && entry.pid != parent && !excepted) result.push_back(entry);
    }
  };
  // The list is not an atomic snapshot: with reused pids it could contain a cycle, so the result is limited to the
  // number of processes.
  add_children_of(root);
  for (std::size_t next = 0; next < result.size() && result.size() <= all.size(); ++next) {
    add_children_of(result[next].pid);
  }
  return result;
}

std::vector<ProcessEntry> living_descendants(const std::vector<pid_t>& except) {
  std::vector<ProcessEntry> result = descendants(getpid(), list_processes(), except);
  std::erase_if(result, [](const ProcessEntry& entry) { return entry.zombie; });
  return result;
}

bool kill_descendants(const std::vector<pid_t>& except, Deadline deadline) {
  for (int empty_looks = 0; empty_looks < 2;) {
    const std::vector<ProcessEntry> found = living_descendants(except);
    for (const ProcessEntry& entry : found) kill(entry.pid, SIGKILL);
    empty_looks = found.empty() ? empty_looks + 1 : 0;
    if (found.empty()) continue;
    if (Clock::now() >= deadline) return false;
    poll(nullptr, 0, kLookAgainMs);
  }
  return true;
}

}  // namespace hvd::launcher

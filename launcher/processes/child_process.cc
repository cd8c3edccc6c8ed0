#include "launcher/processes/child_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>

#include "core/base/error.h"

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

[[noreturn]] void give_up(const char* what, const std::string& path, int error) {
  for (const char* const text : {what, path.c_str(), ": ", strerrordesc_np(error), "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;  // nowhere to report this error
  }
  _exit(error == ENOENT ? 127 : 126);
}

// What a child needs beside its ChildStart; allocated before the fork.
struct ChildArrays {
  std::vector<char*> arguments, environment;  // end with a null pointer
  std::vector<std::uint64_t> cpus;            // one bit per CPU
  std::vector<InheritedDescriptor> inherited;
};

// Moves each descriptor to its number. A descriptor whose current number another one needs is moved away first.
void place_inherited(std::vector<InheritedDescriptor>& entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (std::size_t later = i + 1; later < entries.size(); ++later) {
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
[[noreturn]] void become_child(const ChildStart& start, ChildArrays& arrays, const SignalSource& signals,
                               pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent ended in the meantime
  dup2(start.standard_input, STDIN_FILENO);
  dup2(start.standard_output, STDOUT_FILENO);
  dup2(start.standard_error, STDERR_FILENO);
  place_inherited(arrays.inherited);
  setrlimit(RLIMIT_NOFILE, &start.open_files);
  if (!arrays.cpus.empty()) {
    sched_setaffinity(0, arrays.cpus.size() * 8, reinterpret_cast<const cpu_set_t*>(arrays.cpus.data()));
  }
  signals.restore_original();
  if (!start.working_directory.empty() && chdir(start.working_directory.c_str()) != 0) {
    give_up("hvdrun: cannot enter ", start.working_directory, errno);
  }
  // Also runs a script without a #! line, as shells do.
  execvpe(start.program.c_str(), arrays.arguments.data(), arrays.environment.data());
  give_up("hvdrun: cannot execute ", start.program, errno);
}

// Two shared memory files, the pipe of standard output, and the connection to the store.
constexpr std::size_t kPerRank = 4;
// Temporary descriptors: the write ends of pipes, status connections.
constexpr std::size_t kSpare = 8;

constexpr int kReapPollIntervalMs = 1;

}  // namespace

bool ExitStatus::ok() const { return !by_signal && value == 0; }

int ExitStatus::exit_code() const { return by_signal ? 128 + value : value; }

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
  ChildArrays arrays{.arguments = pointers(start.arguments),
                     .environment = pointers(start.environment),
                     .cpus = bits(start.cpus),
                     .inherited = start.inherited};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_errno("cannot start a process");
  if (pid == 0) become_child(start, arrays, signals, parent);
  setpgid(pid, pid);  // as in the child, so that the group exists before it is signalled
  return pid;
}

std::vector<std::pair<pid_t, ExitStatus>> reap_children() {
  std::vector<std::pair<pid_t, ExitStatus>> result;
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    const bool by_signal = WIFSIGNALED(status);
    result.emplace_back(pid, ExitStatus{.by_signal = by_signal,
                                        .value = by_signal ? WTERMSIG(status) : WEXITSTATUS(status),
                                        .core_dumped = by_signal && WCOREDUMP(status) != 0});
  }
  return result;
}

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

rlimit raise_open_files() {
  static const rlimit original = [] {
    rlimit found{};
    getrlimit(RLIMIT_NOFILE, &found);
    return found;
  }();
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

FileDescriptor memory_file(std::span<const std::byte> bytes) {
  FileDescriptor file(memfd_create("hvd-input", MFD_CLOEXEC));
  if (!file) throw_errno("memfd_create");
  if (write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) throw_errno("write");
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::size_t open_files_of(std::size_t ranks, std::size_t readers, bool merge_errors) {
  return ranks * (merge_errors ? kPerRank : kPerRank + 1) + readers + kSpare;
}

void check_open_files(std::size_t ranks, std::size_t readers, bool merge_errors) {
  rlimit limit{};
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  const auto open_now = error ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
  const std::size_t needed = open_now + open_files_of(ranks, readers, merge_errors);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || needed <= limit.rlim_cur) return;
  throw Internal(std::to_string(ranks) + " ranks on this host take " + std::to_string(needed) +
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
  // The list is no atomic snapshot: with reused pids it could contain a cycle, so the result is limited in size.
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
  for (int empty_scans = 0; empty_scans < 2;) {
    const std::vector<ProcessEntry> found = living_descendants(except);
    for (const ProcessEntry& entry : found) kill(entry.pid, SIGKILL);
    empty_scans = found.empty() ? empty_scans + 1 : 0;
    if (found.empty()) continue;
    if (Clock::now() >= deadline) return false;
    poll(nullptr, 0, kReapPollIntervalMs);
  }
  return true;
}

}  // namespace hvd::launcher

#include "launcher/processes/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/net/byte_codec.h"

namespace hvd::launcher {
namespace {

// Keeps descriptors that are not close-on-exec: hvdrun inherited them for the processes that it starts (a shell's
// `<(command)`, make's job server).
void close_own_but(int kept) {
  std::vector<int> open_ones;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* item = folder != nullptr ? readdir(folder) : nullptr) {
    int fd = -1;
    std::from_chars(item->d_name, item->d_name + std::strlen(item->d_name), fd);
    if (fd > STDERR_FILENO && fd != kept && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) open_ones.push_back(fd);
  }
  if (folder != nullptr) closedir(folder);
  for (const int fd : open_ones) close(fd);  // closes the folder's descriptor again: harmless
}

// Renames the process, so that ps does not show a second hvdrun.
void take_name() {
  prctl(PR_SET_NAME, kSupervisorName);
  std::ifstream file("/proc/self/cmdline");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  char* const words = program_invocation_name;  // the beginning of the command line in memory
  if (line.empty() || !line.starts_with(words)) return;
  std::memset(words, 0, line.size());
  std::strncpy(words, kSupervisorName, line.size() - 1);
}

// Moves the supervisor to its own process group, which no signal of the terminal or of kill(0) reaches, in hvdrun's
// session, where ranks must stay. Blocks all signals, so that the ranks get the dispositions as hvdrun left them.
FileDescriptor become_supervisor(int socket) {
  setpgid(0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t signals;
  sigfillset(&signals);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) dup2(nothing, fd);
  close_own_but(socket);
  take_name();
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  FileDescriptor children(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!children) throw_errno("signalfd");
  return children;
}

// The result borrows its descriptors from the packet.
ChildStart start_of(std::string_view bytes, const Packet& packet) {
  if (packet.truncated)
    throw Internal("cannot start a process: its descriptors do not all arrive (too many open files)");
  ChildStart start = decode_value<ChildStart>(bytes);
  if (packet.descriptors.size() != 3 + start.inherited.size()) {
    throw Internal("malformed message: not as many descriptors as it says");
  }
  start.standard_input = packet.descriptors[0].get();
  start.standard_output = packet.descriptors[1].get();
  start.standard_error = packet.descriptors[2].get();
  for (std::size_t i = 0; i < start.inherited.size(); ++i) start.inherited[i].fd = packet.descriptors[3 + i].get();
  return start;
}

// The supervisor is the subreaper of all processes of the job: one whose parent has ended becomes its child, so that
// "no child is left" means "nothing of the job is left", daemons included.
class SupervisorProcess {
 public:
  SupervisorProcess(int socket, int children, rlimit open_files, const SignalSource& signals)
      : socket_(socket), children_(children), open_files_(open_files), signals_(signals) {}

  enum class End { hvdrun_is_gone, hvdrun_is_silent };

  End run() {
    while (connected_) {
      const auto events = static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
      pollfd ready[2] = {{.fd = socket_, .events = events, .revents = 0},
                         {.fd = children_, .events = POLLIN, .revents = 0}};
      const int count = poll(ready, 2, poll_timeout(lease_.deadline()));
      if (ready[0].revents != 0) receive();
      if (ready[1].revents != 0) on_child_ended();
      flush();
      if (count == 0 && lease_.has_expired(Clock::now())) return End::hvdrun_is_silent;
    }
    return End::hvdrun_is_gone;
  }

 private:
  using Kind = SupervisorReport::Kind;

  void receive() {
    const std::optional<Packet> packet = receive_packet(socket_);
    if (!packet) return;
    if (packet->bytes.empty()) {
      connected_ = false;
      return;
    }
    lease_.renew(Clock::now());
    std::uint32_t number = 0;
    try {
      const SupervisorRequest request = decode_supervisor_request(packet->bytes);
      number = request.number;
      perform(request, *packet);
    } catch (const Error& error) {
      report({.kind = Kind::not_started, .text = error.what(), .number = number});
    }
  }

  void perform(const SupervisorRequest& request, const Packet& packet) {
    switch (request.kind) {
      case SupervisorRequest::Kind::start_part:
        if (std::exchange(start_number_, request.number) != request.number) start_.clear();
        start_ += request.part;
        return;
      case SupervisorRequest::Kind::start: return start(request.number, packet);
      case SupervisorRequest::Kind::signal_ranks: return signal_ranks(request.value);
      case SupervisorRequest::Kind::signal_all: killing_ |= request.value == SIGKILL; return signal_all(request.value);
      case SupervisorRequest::Kind::list_left: {
        std::vector<pid_t> pids;
        for (const ProcessEntry& entry : living_descendants({})) pids.push_back(entry.pid);
        return report({.kind = Kind::left, .pids = std::move(pids), .number = request.number});
      }
      case SupervisorRequest::Kind::set_lease:
        return lease_.set(std::chrono::milliseconds(request.value), Clock::now());
      case SupervisorRequest::Kind::end_groups: ends_groups_ = true; return;
      case SupervisorRequest::Kind::kill_rank:
        if (ranks_.contains(request.value)) kill(-request.value, SIGKILL);
        return;
      case SupervisorRequest::Kind::renew_lease: return;
    }
  }

  void start(std::uint32_t number, const Packet& packet) {
    ChildStart start = start_of(std::exchange(start_, {}), packet);
    start.open_files = open_files_;
    const pid_t pid = start_child(start, signals_);
    ranks_.insert(pid);
    report({.kind = Kind::started, .pid = pid, .number = number});
  }

  void on_child_ended() {
    signalfd_siginfo info;
    while (read(children_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    }
    for (const auto& [pid, status] : reap_children()) {
      if (ranks_.erase(pid) == 0) continue;
      report({.kind = Kind::ended, .pid = pid, .status = status});
      if (ends_groups_ && !killing_) end_group(pid);
    }
    if (!has_children()) {
      report({.kind = Kind::nothing_left});
    } else if (killing_) {
      signal_all(SIGKILL);  // this process has inherited the children of those that were killed
    }
  }

  void end_group(pid_t group) const {
    if (!has_children()) return;
    for (const ProcessEntry& entry : living_descendants({})) {
      if (entry.group == group) kill(entry.pid, SIGKILL);
    }
  }

  // To the process groups of the ranks that still run.
  void signal_ranks(int signal) const {
    for (const pid_t pid : ranks_) kill(-pid, signal);
  }

  // To all descendants of the ranks.
  void signal_all(int signal) const {
    signal_ranks(signal);
    if (!has_children()) return;
    for (const ProcessEntry& entry : living_descendants({})) {
      if (!ranks_.contains(entry.group)) kill(entry.pid, signal);
    }
  }

  // Queues the message, because hvdrun may be stopped by Ctrl-Z and read nothing for a while.
  void report(const SupervisorReport& message) {
    unsent_.push_back(encode(message));
    flush();
  }

  void flush() {
    while (!unsent_.empty()) {
      if (!send_packet(socket_, unsent_.front())) {
        if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM)
          unsent_.clear();  // hvdrun is gone; receive() detects it
        return;
      }
      unsent_.pop_front();
    }
  }

  const int socket_, children_;  // the second is readable after SIGCHLD
  const rlimit open_files_;      // of the ranks
  const SignalSource& signals_;
  std::set<pid_t> ranks_;  // not reaped yet: a pid that may be reused is never signalled
  SupervisorLease lease_;
  std::string start_;  // the start_part messages of the next start
  std::uint32_t start_number_ = 0;
  std::deque<std::string> unsent_;
  bool killing_ = false;
  bool ends_groups_ = false;
  bool connected_ = true;
};

}  // namespace

void run_supervisor(FileDescriptor socket, const SignalSource& signals, pid_t hvdrun) {
  int code = EXIT_FAILURE;
  try {
    const rlimit open_files = raise_open_files();
    const FileDescriptor children = become_supervisor(socket.get());
    SupervisorProcess supervisor(socket.get(), children.get(), open_files, signals);
    // A silent hvdrun is stopped. It is still this process's parent, so its pid cannot have been reused.
    if (supervisor.run() == SupervisorProcess::End::hvdrun_is_silent && getppid() == hvdrun) kill(hvdrun, SIGKILL);
    if (!has_children() || kill_descendants({}, deadline_after(kKillingTime))) code = EXIT_SUCCESS;
  } catch (...) {  // out of memory or descriptors: hvdrun detects the supervisor's end
  }
  _exit(code);
}

}  // namespace hvd::launcher

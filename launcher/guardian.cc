#include "launcher/guardian.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "launcher/guardian_vigil.h"
#include "launcher/marked_processes.h"
#include "launcher/throw_errno.h"

namespace hvd::launcher {
namespace {

constexpr const char* kName = "hvd-guardian";
constexpr Duration kLongestKilling = 5s;

void close_all_but(std::initializer_list<int> kept) {
  std::vector<int> open_ones;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* item = folder != nullptr ? readdir(folder) : nullptr) {
    int fd = -1;
    std::from_chars(item->d_name, item->d_name + std::strlen(item->d_name), fd);
    if (fd > STDERR_FILENO && std::find(kept.begin(), kept.end(), fd) == kept.end()) open_ones.push_back(fd);
  }
  if (folder != nullptr) closedir(folder);
  for (const int fd : open_ones) close(fd);  // the folder's among them, again: harmless
}

// To ps it is not a second hvdrun, and to another job's guardian none of that job's processes: this one has something
// to do when those are killed.
void become_nameless() {
  prctl(PR_SET_NAME, kName);
  std::ifstream file("/proc/self/cmdline");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  char* const words = program_invocation_name;  // where the command line begins
  if (!line.empty() && line.starts_with(words)) {
    std::memset(words, 0, line.size());
    std::strncpy(words, kName, line.size() - 1);
  }
  for (char** variable = environ; *variable != nullptr; ++variable) std::memset(*variable, 0, std::strlen(*variable));
}

void settle(int socket, int hvdrun) {
  for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir("/") != 0) return;  // it always can
  const int nothing = open("/dev/null", O_RDWR);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) dup2(nothing, fd);
  close_all_but({socket, hvdrun});
  become_nameless();
}

// Returns when hvdrun is gone, silent (true), or has dismissed it.
bool wait_for_the_end(int socket, GuardianVigil& vigil) {
  std::array<char, 5 + kMaxMarkBytes> message;
  while (!vigil.dismissed()) {
    pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, poll_timeout(vigil.deadline())) > 0) {
      const ssize_t count = recv(socket, message.data(), message.size(), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (count > 0) vigil.hear({message.data(), static_cast<std::size_t>(count)}, Clock::now());
    } else if (vigil.silent(Clock::now())) {
      return true;
    }
  }
  return false;
}

void keep_guard(int socket, int hvdrun, pid_t hvdrun_pid) {
  GuardianVigil vigil;
  const bool silent = wait_for_the_end(socket, vigil);
  if (vigil.dismissed() || vigil.mark().empty()) return;
  if (silent) {
    // It is stopped, so its number is its own still. Without pidfd_open: before Linux 5.3.
    if (hvdrun >= 0) {
      syscall(SYS_pidfd_send_signal, hvdrun, SIGKILL, nullptr, 0);
    } else {
      kill(hvdrun_pid, SIGKILL);
    }
  }
  kill_marked(vigil.mark(), deadline_after(kLongestKilling));
}

// In the first child: forks the guardian and says its pid.
[[noreturn]] void start_guardian(int socket, pid_t hvdrun_pid) {
  const int hvdrun = static_cast<int>(syscall(SYS_pidfd_open, hvdrun_pid, 0));
  setsid();
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      settle(socket, hvdrun);
      keep_guard(socket, hvdrun, hvdrun_pid);
    } catch (...) {  // out of memory: nobody is there to tell
    }
    _exit(0);
  }
  send(socket, &pid, sizeof pid, MSG_NOSIGNAL);
  _exit(0);
}

}  // namespace

Guardian::Guardian() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw_errno("cannot make a pair of sockets");
  }
  socket_.reset(ends[0]);
  FileDescriptor other(ends[1]);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    socket_.reset();
    start_guardian(other.get(), self);
  }
  other.reset();
  if (child > 0) {
    if (recv(socket_.get(), &pid_, sizeof pid_, 0) != sizeof pid_) pid_ = -1;
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (pid_ < 0) throw_errno("cannot start the guardian");
}

Guardian::~Guardian() { say({static_cast<char>(GuardianWord::dismiss)}); }

void Guardian::guard(const std::string& mark, std::optional<Duration> lease) { say(encode_guard(mark, lease)); }

void Guardian::tick() { say({static_cast<char>(GuardianWord::tick)}); }

void Guardian::say(const std::string& message) {
  send(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace hvd::launcher

#include "launcher/marked_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <memory>
#include <string>

#include "core/net/socket.h"

namespace hvd::launcher {
namespace {

constexpr int kPauseMs = 10;

std::string read_whole(int fd) {
  std::string text;
  char piece[16 * 1024];
  for (ssize_t count = read(fd, piece, sizeof piece); count > 0; count = read(fd, piece, sizeof piece)) {
    text.append(piece, static_cast<std::size_t>(count));
  }
  return text;
}

bool has_entry(std::string_view environment, std::string_view entry) {
  while (!environment.empty()) {
    const auto end = environment.find('\0');
    if (environment.substr(0, end) == entry) return true;
    if (end == std::string_view::npos) return false;
    environment.remove_prefix(end + 1);
  }
  return false;
}

// Whether it had the mark. The descriptors belong to the process, not to its number: none that takes over the number in
// between is hit.
bool kill_if_marked(int proc, pid_t pid, std::string_view mark) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const FileDescriptor folder(openat(proc, std::to_string(pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat owner {};
  if (!folder || fstat(folder.get(), &owner) != 0 || owner.st_uid != geteuid()) return false;
  const FileDescriptor file(openat(folder.get(), "environ", O_RDONLY | O_CLOEXEC));
  if (!file || !carries_mark(read_whole(file.get()), mark)) return false;
  if (process) {
    syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  } else {
    kill(pid, SIGKILL);  // before Linux 5.3
  }
  return true;
}

int kill_all_once(std::string_view mark) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc) return 0;
  int found = 0;
  while (const dirent* item = readdir(proc.get())) {
    const std::string_view name = item->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size() || pid == getpid()) continue;
    if (kill_if_marked(dirfd(proc.get()), pid, mark)) ++found;
  }
  return found;
}

}  // namespace

bool carries_mark(std::string_view environment, std::string_view mark) {
  while (true) {
    const auto end = mark.find('\0');
    if (!has_entry(environment, mark.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    mark.remove_prefix(end + 1);
  }
}

bool kill_marked(std::string_view mark, Deadline deadline) {
  for (int clean = 0;;) {
    clean = kill_all_once(mark) == 0 ? clean + 1 : 0;
    if (clean == 2) return true;
    if (Clock::now() >= deadline) return false;
    poll(nullptr, 0, kPauseMs);
  }
}

}  // namespace hvd::launcher

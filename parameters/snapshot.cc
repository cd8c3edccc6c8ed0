#include "parameters/snapshot.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/base/error.h"
#include "core/net/socket.h"

namespace hvd {

namespace {

// The file: magic, then each part with its length and its sum before it; a part of no bytes is the end.
constexpr std::array<char, 8> kMagic = {'h', 'v', 'd', 'p', 's', '0', '0', '3'};
constexpr const char* kExtension = ".hvdps";
constexpr int kResult = 3;  // the descriptor by which a process that writes tells its result

struct PartHead {
  std::uint64_t bytes = 0;
  std::uint64_t sum = 0;
};

// FNV-1a over words of 8 bytes: finds files that were cut or overwritten.
std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325ull;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    sum = (sum ^ word) * 0x100000001b3ull;
  }
  return sum;
}

bool write_all(int fd, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t count = ::write(fd, at, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

bool write_file(const Shard& shard, const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file || !write_all(file.get(), kMagic.data(), kMagic.size())) return false;
  StatePosition position;
  for (;;) {
    const Bytes part = shard.write_state(position);
    const PartHead head{.bytes = part.size(), .sum = sum_of(part)};
    if (!write_all(file.get(), &head, sizeof head) || !write_all(file.get(), part.data(), part.size())) return false;
    if (part.empty()) return fsync(file.get()) == 0;
  }
}

std::string path_of(const Shard& shard, const std::string& folder) {
  return folder + "/shard-" + std::to_string(shard.number()) + "-of-" + std::to_string(shard.shards()) + kExtension;
}

// Returns 0 or an errno value. Leaves no unfinished file.
int write_snapshot(const Shard& shard, const std::string& folder) {
  const std::string path = path_of(shard, folder), unfinished = path + ".unfinished";
  if (write_file(shard, unfinished) && rename(unfinished.c_str(), path.c_str()) == 0) return 0;
  const int cause = std::max(errno, 1);
  unlink(unfinished.c_str());
  return cause;
}

// Sorted. Throws InvalidArgument unless they are the whole of one snapshot.
std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == kExtension) files.push_back(entry->path());
  }
  if (files.empty()) throw InvalidArgument("there is no snapshot in " + folder);
  std::ranges::sort(files);
  const std::string count = "-of-" + std::to_string(files.size());
  for (const auto& file : files) {
    if (file.stem().string().ends_with(count)) continue;
    throw InvalidArgument("the folder " + folder + " has " + std::to_string(files.size()) +
                          " files of snapshots, and " + file.filename().string() +
                          " is not of so many: it is incomplete, or of several jobs");
  }
  return files;
}

class SnapshotFile {
 public:
  explicit SnapshotFile(const std::filesystem::path& path) : path_(path), file_(path, std::ios::binary) {
    std::error_code ignored;
    size_ = std::filesystem::file_size(path, ignored);
    std::array<char, 8> magic{};
    if (!file_.read(magic.data(), magic.size()) || magic != kMagic)
      throw malformed("was not written by this version of hvd");
  }

  InvalidArgument malformed(const std::string& why) const {
    return InvalidArgument("the snapshot " + path_.string() + " " + why +
                           ": remove it, or restore from another folder");
  }

  // Empty at the end.
  Bytes next() {
    PartHead head;
    if (!file_.read(reinterpret_cast<char*>(&head), sizeof head)) throw malformed("has no end");
    if (head.bytes > size_) throw malformed("is damaged");
    Bytes part(head.bytes);
    if (!file_.read(reinterpret_cast<char*>(part.data()), static_cast<std::streamsize>(head.bytes))) {
      throw malformed("has no end");
    }
    if (sum_of(part) != head.sum) throw malformed("is damaged");
    return part;
  }

 private:
  const std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;
};

void restore_file(Shard& shard, const std::filesystem::path& path) {
  SnapshotFile file(path);
  for (;;) {
    const Bytes part = file.next();
    if (part.empty()) return;
    try {
      shard.read_state(part);
    } catch (const Internal&) {
      throw file.malformed("is damaged");
    }
  }
}

}  // namespace

SnapshotProcess::SnapshotProcess(const std::vector<const Shard*>& shards, const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw Unsupported("cannot start a snapshot: " + error_text(errno));
  said_ = FileDescriptor(ends[0]);
  const FileDescriptor says(ends[1]);
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ < 0) throw Unsupported("cannot start a process for a snapshot: " + error_text(errno));
  if (child_ > 0) return;
  // It ends with the server, because a restarted server writes the same files.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  dup2(says.get(), kResult);
  syscall(SYS_close_range, kResult + 1u, ~0u, 0u);  // connections and listeners end with the server
  int cause = failure.value();
  try {
    for (const Shard* const shard : shards) {
      if (cause == 0) cause = write_snapshot(*shard, folder);
    }
  } catch (...) {  // must not reach the server's loop, of which this process has a copy
    cause = ENOMEM;
  }
  (void)!write(kResult, &cause, sizeof cause);
  _exit(0);
}

SnapshotProcess::~SnapshotProcess() {
  if (result()) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

std::optional<int> SnapshotProcess::result() {
  if (result_ || waitpid(child_, nullptr, WNOHANG) == 0) return result_;
  int cause = 0;
  result_ = read(said_.get(), &cause, sizeof cause) == sizeof cause ? cause : kKilled;
  return result_;
}

void restore_snapshot(Shard& shard, const std::string& folder) {
  for (const auto& file : files_in(folder)) restore_file(shard, file);
}

bool restore_own_snapshot(Shard& shard, const std::string& folder) {
  const std::string path = path_of(shard, folder);
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::exists(path, ignored)) return false;
  if (!shard.is_own_state(SnapshotFile(path).next())) return false;
  restore_file(shard, path);
  return true;
}

}  // namespace hvd

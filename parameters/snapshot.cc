#include "parameters/snapshot.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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
constexpr std::array<char, 8> kMagic = {'h', 'v', 'd', 'p', 's', '0', '0', '1'};
constexpr const char* kExtension = ".hvdps";
constexpr std::uint64_t kLongestPart = std::uint64_t{1} << 40;

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
  Shard::Position position;
  for (;;) {
    const Bytes part = shard.write_state(position);
    const PartHead head{.bytes = part.size(), .sum = sum_of(part)};
    if (!write_all(file.get(), &head, sizeof head) || !write_all(file.get(), part.data(), part.size())) return false;
    if (part.empty()) return fsync(file.get()) == 0;
  }
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    if (entry.path().extension() == kExtension) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

void restore_file(Shard& shard, const std::filesystem::path& path) {
  const auto malformed = [&](const std::string& why) {
    return InvalidArgument("the snapshot " + path.string() + " " + why + ": remove it, or restore from another folder");
  };
  std::ifstream file(path, std::ios::binary);
  std::array<char, 8> magic{};
  if (!file.read(magic.data(), magic.size()) || magic != kMagic) throw malformed("is none of this version of hvd");
  const std::uint64_t size = std::filesystem::file_size(path);
  Bytes part;
  for (;;) {
    PartHead head;
    if (!file.read(reinterpret_cast<char*>(&head), sizeof head)) throw malformed("has no end");
    if (head.bytes > std::min(kLongestPart, size)) throw malformed("is damaged");
    part.resize(head.bytes);
    if (!file.read(reinterpret_cast<char*>(part.data()), static_cast<std::streamsize>(head.bytes))) {
      throw malformed("has no end");
    }
    if (sum_of(part) != head.sum) throw malformed("is damaged");
    if (part.empty()) return;
    try {
      shard.read_state(part);
    } catch (const Internal&) {
      throw malformed("is damaged");
    }
  }
}

}  // namespace

pid_t start_snapshot(const Shard& shard, const std::string& folder) {
  const std::string path =
      folder + "/shard-" + std::to_string(shard.number()) + "-of-" + std::to_string(shard.shards()) + kExtension;
  const std::string unfinished = path + ".unfinished";
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const pid_t child = fork();
  if (child < 0) throw Unsupported("cannot start a process for a snapshot: " + error_text(errno));
  if (child > 0) return child;
  syscall(SYS_close_range, 3u, ~0u, 0u);  // connections and listeners end with the server
  const bool written = write_file(shard, unfinished) && rename(unfinished.c_str(), path.c_str()) == 0;
  _exit(written ? 0 : std::clamp(errno, 1, 255));
}

bool has_snapshot(const std::string& folder) { return !folder.empty() && !files_in(folder).empty(); }

void restore_snapshot(Shard& shard, const std::string& folder) {
  const auto files = files_in(folder);
  if (files.empty()) throw InvalidArgument("there is no snapshot in " + folder);
  for (const auto& file : files) restore_file(shard, file);
}

}  // namespace hvd

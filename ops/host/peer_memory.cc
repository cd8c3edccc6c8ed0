#include "ops/host/peer_memory.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "core/base/error.h"

namespace hvd {

namespace {

std::uint64_t random_word() {
  std::uint64_t word = 0;
  // Without a random word no rank is recognised, and no memory is read.
  return getrandom(&word, sizeof word, GRND_NONBLOCK) == sizeof word ? word : 0;
}

constexpr std::uint64_t kNowhere = 8;  // an address at which no process has memory

// process_vm_readv or process_vm_writev.
using Access = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// Returns the number of bytes copied, or -1 and errno.
ssize_t copy_some(Access access, pid_t process, std::uint64_t address, void* local, std::size_t bytes) {
  const iovec here{.iov_base = local, .iov_len = bytes};
  const iovec there{.iov_base = std::bit_cast<void*>(address), .iov_len = bytes};
  return access(process, &here, 1, &there, 1, 0);
}

void copy(Access access, pid_t process, std::uint64_t address, void* local, std::size_t bytes,
          const std::function<std::string()>& describe) {
  auto* next = static_cast<std::byte*>(local);
  while (bytes > 0) {
    const ssize_t count = copy_some(access, process, address, next, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ESRCH) throw PeerLost(describe() + " is gone");
    if (count < 0 && errno == EFAULT) throw PeerLost(describe() + " no longer has the memory that it offered");
    if (count <= 0) throw Internal("no access to the memory of " + describe() + ": " + error_text(errno));
    next += count;
    address += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

}  // namespace

PeerMemory::PeerMemory() : word_(random_word()) {}

PeerMemory::AccessProbe PeerMemory::local_probe() const {
  return {.process = getpid(), .address = reinterpret_cast<std::uint64_t>(&word_), .word = word_};
}

bool PeerMemory::probe_access(std::span<const AccessProbe> ranks) {
  bool all = true;
  for (const AccessProbe& rank : ranks) {
    std::uint64_t word = 0;
    all = all && rank.word != 0 &&
          copy_some(process_vm_readv, rank.process, rank.address, &word, sizeof word) == sizeof word &&
          word == rank.word;
    all = all && copy_some(process_vm_writev, rank.process, kNowhere, &word, sizeof word) < 0 && errno == EFAULT;
    ranks_.push_back(rank);
  }
  return all;
}

bool PeerMemory::is_accessible(std::span<const std::uint64_t> addresses) {
  if (std::ranges::equal(addresses, accessible_)) return true;
  accessible_.clear();
  for (const std::uint64_t address : addresses) {
    std::byte first;
    if (address != 0 && copy_some(process_vm_readv, getpid(), address, &first, 1) != 1) return false;
  }
  accessible_.assign(addresses.begin(), addresses.end());
  return true;
}

void PeerMemory::read(int rank, std::uint64_t address, void* destination, std::size_t bytes,
                      const std::function<std::string(int)>& describe) const {
  copy(process_vm_readv, ranks_[static_cast<std::size_t>(rank)].process, address, destination, bytes,
       [&] { return describe(rank); });
}

void PeerMemory::write(int rank, std::uint64_t address, const void* source, std::size_t bytes,
                       const std::function<std::string(int)>& describe) const {
  copy(process_vm_writev, ranks_[static_cast<std::size_t>(rank)].process, address, const_cast<void*>(source), bytes,
       [&] { return describe(rank); });
}

bool PeerMemory::is_alive(int rank) const {
  const AccessProbe& peer = ranks_[static_cast<std::size_t>(rank)];
  std::uint64_t word = 0;
  return copy_some(process_vm_readv, peer.process, peer.address, &word, sizeof word) >= 0 || errno != ESRCH;
}

}  // namespace hvd

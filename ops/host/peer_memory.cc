#include "ops/host/peer_memory.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

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

// Returns the number of bytes read, or -1 and errno.
ssize_t read_some(pid_t process, std::uint64_t address, void* destination, std::size_t bytes) {
  const iovec here{.iov_base = destination, .iov_len = bytes};
  const iovec there{.iov_base = std::bit_cast<void*>(address), .iov_len = bytes};
  return process_vm_readv(process, &here, 1, &there, 1, 0);
}

}  // namespace

PeerMemory::PeerMemory() : word_(random_word()) {}

PeerMemory::Introduction PeerMemory::introduction() const {
  return {.process = getpid(), .address = reinterpret_cast<std::uint64_t>(&word_), .word = word_};
}

bool PeerMemory::meet(std::span<const Introduction> ranks) {
  bool all = true;
  for (const Introduction& rank : ranks) {
    std::uint64_t word = 0;
    all = all && rank.word != 0 && read_some(rank.process, rank.address, &word, sizeof word) == sizeof word &&
          word == rank.word;
    processes_.push_back(rank.process);
  }
  return all;
}

void PeerMemory::read(int rank, std::uint64_t address, void* destination, std::size_t bytes,
                      const std::function<std::string(int)>& describe) const {
  const pid_t process = processes_[static_cast<std::size_t>(rank)];
  auto* next = static_cast<std::byte*>(destination);
  while (bytes > 0) {
    const ssize_t count = read_some(process, address, next, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ESRCH) throw PeerLost(describe(rank) + " is gone");
    if (count < 0 && errno == EFAULT) throw PeerLost(describe(rank) + " no longer has the memory that it offered");
    if (count <= 0) throw Internal("cannot read the memory of " + describe(rank) + ": " + error_text(errno));
    next += count;
    address += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

}  // namespace hvd

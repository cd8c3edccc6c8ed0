// The private memory of the host's other ranks, read where it lies (process_vm_readv(2)): one copy by the kernel
// instead of one into shared memory and one out of it.
//
// Not every system permits it (Yama's ptrace_scope, seccomp, other users, other PID namespaces), so the ranks find out
// at start: each tells where a word of its own lies, and tries to read everyone's.
//
// Engine thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace hvd {

class PeerMemory {
 public:
  // What a rank tells of itself.
  struct Introduction {
    pid_t process;
    std::uint64_t address;  // of the word
    std::uint64_t word;     // random, so that no other process is taken for the rank
  };

  PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  Introduction introduction() const;
  // One for each rank of the host. True if the memory of all of them can be read.
  bool meet(std::span<const Introduction> ranks);

  // Copies what is at `address` in the rank's memory; any address, since the kernel checks it. Throws, with the rank's
  // description, PeerLost if the process is gone, or the memory: a rank that has given up the operation, of which the
  // control plane will tell why, frees its tensors. Else Internal.
  void read(int rank, std::uint64_t address, void* destination, std::size_t bytes,
            const std::function<std::string(int)>& describe) const;

 private:
  const std::uint64_t word_;
  std::vector<pid_t> processes_;
};

}  // namespace hvd

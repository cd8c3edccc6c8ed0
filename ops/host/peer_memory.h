// Reads and writes the private memory of the host's other ranks (process_vm_readv(2)): one copy by the kernel instead
// of one into shared memory and one out of it.
//
// Not every system permits it (Yama's ptrace_scope, seccomp, other users, other PID namespaces), so the ranks test it
// at start: each publishes the address of a word, and tries to read the words of all others, and to write where there
// is nothing. Some memory is not even accessible to its own process in this way: what a driver has mapped. Used by one
// thread at a time.
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
  // A rank's word, for the test.
  struct AccessProbe {
    pid_t process;
    std::uint64_t address;  // of the word
    std::uint64_t word;     // random, so that another process is not mistaken for the rank
  };

  PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  AccessProbe local_probe() const;
  // Takes one probe per rank of the host. Returns true if the memory of all of them is accessible.
  bool probe_access(std::span<const AccessProbe> ranks);

  // Copies from `address` in the rank's memory; any address is safe, since the kernel checks it. Throws, with the
  // rank's description, PeerLost if the process or the memory is gone: a rank that has aborted the operation frees its
  // tensors, and the control plane will report why. Otherwise Internal.
  void read(int rank, std::uint64_t address, void* destination, std::size_t bytes,
            const std::function<std::string(int)>& describe) const;
  // Copies to `address` in the rank's memory; otherwise as read(). The caller ensures that the rank has not withdrawn
  // its memory (PeerWriteScope).
  void write(int rank, std::uint64_t address, const void* source, std::size_t bytes,
             const std::function<std::string(int)>& describe) const;
  // Whether this rank's memory at all these addresses, of which some may be null, is accessible in this way. Cheap for
  // the addresses of the previous call.
  bool is_accessible(std::span<const std::uint64_t> addresses);
  // Whether the rank's process has not ended.
  bool is_alive(int rank) const;

 private:
  const std::uint64_t word_;
  std::vector<AccessProbe> ranks_;
  std::vector<std::uint64_t> accessible_;  // the addresses that were accessible last
};

}  // namespace hvd

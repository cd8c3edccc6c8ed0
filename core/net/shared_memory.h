// Memory that several processes map: an anonymous file (memfd) whose descriptor travels over a Unix socket.
//
// Nothing has a name in a file system: no /dev/shm limit, nothing left behind after a crash. Fresh memory is zero. It
// may be larger than what is mapped of it: the rest takes neither memory nor address space until somebody maps it.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "core/net/mapped_range.h"
#include "core/net/socket.h"

namespace hvd {

class SharedMemory {
 public:
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  // New memory of `bytes`, sealed against shrinking, of which the first `mapped` are mapped (both rounded up to pages).
  // Throws Internal (out of memory, or of address space).
  static SharedMemory create(std::size_t bytes, const std::string& label, std::size_t mapped = kAll);
  // Maps what another process created; throws Internal if it has not `bytes`.
  static SharedMemory map(FileDescriptor fd, std::size_t bytes, std::size_t mapped = kAll);

  // A mapping of its own of any range (whole pages) of all the bytes. Throws Internal.
  MappedRange map_range(std::size_t begin, std::size_t bytes) const { return {fd_.get(), begin, bytes}; }

  // Memory is taken at the first touch, which is fatal where there is none left. take() takes a range beforehand (whole
  // pages around it) and throws Internal instead; give_back() frees whole pages of it, which then read as zero again.
  void take(std::size_t begin, std::size_t bytes) const;
  void give_back(std::size_t begin, std::size_t bytes) const noexcept;

  // What is mapped.
  std::byte* data() const { return mapped_.data(); }
  std::size_t size() const { return mapped_.size(); }
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(FileDescriptor fd, std::size_t mapped);
  FileDescriptor fd_;
  MappedRange mapped_;
};

}  // namespace hvd

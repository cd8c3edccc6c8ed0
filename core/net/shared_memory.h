// Memory that several processes map: an anonymous file (memfd) whose descriptor is passed over a Unix socket,
// and the ranges of it that this process maps.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "core/net/socket.h"

namespace hvd {

// `bytes` rounded up to whole pages, the unit of all ranges.
std::size_t whole_pages(std::size_t bytes);

// A range of a file mapped into this process's address space, shared with other processes; unmapped on destruction.
class MappedRange {
 public:
  MappedRange() = default;  // maps nothing
  // Maps from `begin` on; both in whole pages. Throws Internal, which says whether the address space is limited.
  MappedRange(int fd, std::size_t begin, std::size_t bytes);

  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;
  ~MappedRange();

  // Extends the range, perhaps at another address. Throws as the constructor does, and is unchanged then.
  void grow(std::size_t bytes);

  std::byte* data() const;
  std::size_t size() const;
  bool contains(const void* memory) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// It has no name in a file system: no /dev/shm limit, and nothing is left behind after a crash. Fresh memory is zero.
// It may be larger than its mapped part: the rest uses neither memory nor address space until it is mapped.

class SharedMemory {
 public:
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  // New memory of `bytes`, sealed against shrinking, with the first `mapped` bytes mapped (both rounded up to pages).
  // Throws Internal (out of memory or address space).
  static SharedMemory create(std::size_t bytes, const std::string& label, std::size_t mapped = kAll);
  // Maps memory that another process created; throws Internal if it does not have `bytes`.
  static SharedMemory map(FileDescriptor fd, std::size_t bytes, std::size_t mapped = kAll);

  // A separate mapping of any range (whole pages) of the memory. Throws Internal.
  MappedRange map_range(std::size_t begin, std::size_t bytes) const;

  // Memory is committed at the first access, which is fatal if none is left. take() commits a range in advance (the
  // whole pages around it) and throws Internal instead; give_back() frees the whole pages in a range, which then read
  // as zero.
  void take(std::size_t begin, std::size_t bytes) const;
  void give_back(std::size_t begin, std::size_t bytes) const noexcept;

  // The mapped part.
  std::byte* data() const;
  std::size_t size() const;
  int fd() const;

 private:
  SharedMemory(FileDescriptor fd, std::size_t mapped);
  FileDescriptor fd_;
  MappedRange mapped_;
};

}  // namespace hvd

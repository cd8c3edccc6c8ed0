// Memory that several processes map: an anonymous file (memfd) whose descriptor travels over a Unix socket.
//
// Nothing has a name in a file system: no /dev/shm limit, nothing left behind after a crash. Fresh memory is zero.
#pragma once

#include <cstddef>
#include <string>

#include "core/net/socket.h"

namespace hvd {

class SharedMemory {
 public:
  // A new mapping of `bytes` (rounded up to pages), sealed against shrinking. Throws Internal (out of memory).
  static SharedMemory create(std::size_t bytes, const std::string& label);
  // Maps what another process created; throws Internal if it is smaller than `bytes`.
  static SharedMemory map(FileDescriptor fd, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Memory is taken at the first touch, which is fatal where there is none left. take() takes a range beforehand (whole
  // pages around it) and throws Internal instead; give_back() frees whole pages of it, which then read as zero again.
  void take(std::size_t begin, std::size_t bytes) const;
  void give_back(std::size_t begin, std::size_t bytes) const noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(FileDescriptor fd, std::byte* data, std::size_t size);
  FileDescriptor fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hvd

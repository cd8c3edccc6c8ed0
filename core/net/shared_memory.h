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

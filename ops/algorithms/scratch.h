// Memory that a backend keeps from call to call, for one use at a time: fresh pages cost more than what is done in
// them.
#pragma once

#include <cstddef>
#include <memory>

namespace hvd {

class Scratch {
 public:
  // At least so many bytes, for any type; their content is undefined, and what was taken before is gone.
  std::byte* take(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }

  // After a call: a buffer beyond this was for one huge tensor and is given back.
  void release_large() {
    if (bytes_ <= kKeptBytes) return;
    memory_.reset();
    bytes_ = 0;
  }

 private:
  static constexpr std::size_t kKeptBytes = std::size_t{128} << 20;

  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace hvd

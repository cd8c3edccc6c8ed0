// Memory that a backend keeps between calls, for one use at a time: new pages cost more than the work in them.
#pragma once

#include <cstddef>
#include <memory>

namespace hvd {

class Scratch {
 public:
  // Returns at least `bytes`, aligned for any type, with undefined content; invalidates earlier results.
  std::byte* take(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }

  // Called after a call: frees a buffer above the limit, which was needed for one huge tensor.
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

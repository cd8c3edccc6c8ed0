// The memory of the fake devices: blocks of this process's memory that know whose they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/support/fake_cuda/fake_cuda.h"

namespace hvd::testing {

class FakeMemory {
 public:
  void* allocate(int device, std::size_t bytes) {
    void* const memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    std::memset(memory, kFreshPoison, bytes);
    const std::lock_guard lock(mutex_);
    blocks_[reinterpret_cast<std::uintptr_t>(memory)] = {device, bytes};
    return memory;
  }

  bool free(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == blocks_.end()) return false;
    std::memset(memory, kFreedPoison, found->second.bytes);
    std::free(memory);
    blocks_.erase(found);
    return true;
  }

  // Is all of [memory, memory + bytes) one block's of this device?
  bool holds(int device, const void* memory, std::size_t bytes) {
    if (bytes == 0) return true;
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return false;
    const auto& [begin, block] = *--after;
    return block.device == device && address - begin + bytes <= block.bytes;
  }

  int blocks() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(blocks_.size());
  }

 private:
  static constexpr std::size_t kAlignment = 256;  // the driver's
  struct Block {
    int device;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;  // guarded by mutex_
};

}  // namespace hvd::testing

// Device memory that replaces the tensors of a joined rank: taken piece by piece within a call, and reused from the
// start by the next one. That is safe without waiting, since all calls are in one stream. Nothing is freed before the
// end, because the driver would then wait for the whole device, and block the thread that drives the engine, which has
// to detect a stuck device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/device/device_runtime.h"

namespace hvd::nccl {

class DeviceScratch {
 public:
  // Called at the beginning of a call.
  void restart() { used_ = 0; }

  void* take(DeviceRuntime& devices, int device, std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (blocks_.empty() || bytes > size_ - used_) {
      size_ = std::max(bytes, size_ * 2);
      used_ = 0;
      blocks_.push_back(devices.allocate(device, size_));
    }
    void* const taken = static_cast<std::byte*>(blocks_.back().get()) + used_;
    used_ += bytes;
    return taken;
  }

 private:
  static constexpr std::size_t kAlignment = 256;

  std::vector<std::shared_ptr<void>> blocks_;  // the last one is in use
  std::size_t size_ = 0, used_ = 0;            // of the last one
};

}  // namespace hvd::nccl

// Memory of a device for what a joined rank has no tensors for: taken piece by piece within a call, and from the start
// again for the next one. That is safe without waiting, since all calls are in one stream. Nothing is given back before
// the end: the driver would wait for the whole device then, and with it whoever drives the engine, who has to notice if
// the device is stuck.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/device/device_runtime.h"

namespace hvd::nccl {

class DeviceScratch {
 public:
  // A call begins.
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

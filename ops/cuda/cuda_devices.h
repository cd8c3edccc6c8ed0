// The DeviceRuntime of core for CUDA devices. Opens the CUDA driver at the first use of a device: a job without GPU
// tensors never loads it. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/device/device_runtime.h"
#include "ops/cuda/driver.h"

namespace hvd::cuda {

class CudaDevices final : public DeviceRuntime {
 public:
  // `library`: as for Driver.
  explicit CudaDevices(std::string library) : library_(std::move(library)) {}

  std::shared_ptr<const DeviceEvent> record(int device, void* stream) override;
  std::shared_ptr<void> allocate(int device, std::size_t bytes) override;

  // Throws Unsupported with the reason, at each call.
  std::shared_ptr<Driver> driver();

 private:
  const std::string library_;
  std::mutex mutex_;
  std::shared_ptr<Driver> driver_;  // guarded by mutex_; null: not opened yet
};

}  // namespace hvd::cuda

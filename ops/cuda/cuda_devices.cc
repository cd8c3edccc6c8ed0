#include "ops/cuda/cuda_devices.h"

#include <bit>

#include "ops/cuda/cuda_event.h"

namespace hvd::cuda {

std::shared_ptr<const DeviceEvent> CudaDevices::record(int device, void* stream) {
  return std::make_shared<RecordedEvent>(driver(), device, static_cast<Stream>(stream));
}

std::shared_ptr<void> CudaDevices::allocate(int device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  std::shared_ptr<Driver> own = driver();
  Address address = 0;
  {
    const ContextScope context(*own, device);
    own->check(own->call().allocate(&address, bytes), "cuMemAlloc");
  }
  return {std::bit_cast<void*>(address), [own, device, address](void*) {
            try {
              const ContextScope context(*own, device);
              own->call().free(address);
            } catch (...) {  // a failed driver has nothing to release
            }
          }};
}

std::shared_ptr<Driver> CudaDevices::driver() {
  const std::lock_guard lock(mutex_);
  if (!driver_) driver_ = std::make_shared<Driver>(library_);
  return driver_;
}

}  // namespace hvd::cuda

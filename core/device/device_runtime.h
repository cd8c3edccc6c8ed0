// What core needs of the devices of this process: points in the order of their streams, and memory. An interface, so
// that core knows no driver: ops/cuda implements it, and opens the driver when it is first asked for something.
//
// Owned by the communicator; what comes from it may outlive it. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/device/device_event.h"

namespace hvd {

// In place of a stream: all of the device's.
inline void* const kAllStreams = reinterpret_cast<void*>(UINTPTR_MAX);  // NOLINT(*-int-to-ptr)

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  // All that is in `stream` of this device by now (null: its default stream; kAllStreams: in any). Throws Unsupported
  // that says what is missing, InvalidArgument if there is no such device.
  virtual std::shared_ptr<const DeviceEvent> record(int device, void* stream) = 0;

  // Memory of the device, content undefined; null if there are no bytes. It is given back with the last reference,
  // which may wait for the device. Throws Error.
  virtual std::shared_ptr<void> allocate(int device, std::size_t bytes) = 0;
};

}  // namespace hvd

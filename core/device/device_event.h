// A point in the order of a device's work: everything that was enqueued in one stream until then.
//
// Made by a DeviceRuntime, or by a backend for the end of what it has enqueued in its stream. Any thread.
#pragma once

namespace hvd {

class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;

  // Whether the device has reached this point. Throws Error if the device has failed.
  virtual bool happened() const = 0;

  // Makes a stream of the same device wait for this point. Does not block.
  virtual void hold_up(void* stream) const = 0;
};

}  // namespace hvd

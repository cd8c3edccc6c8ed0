// A point in the order of a device's work: "all that was put into that stream until then".
//
// Made by a DeviceRuntime, or by a backend for the end of what it has put into a stream of its own. Any thread.
#pragma once

namespace hvd {

class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;

  // Whether the device has come so far. Throws Error if the device has failed.
  virtual bool happened() const = 0;

  // Has the stream, of the same device, go on only when the device has come so far. Waits for nothing itself.
  virtual void hold_up(void* stream) const = 0;
};

}  // namespace hvd

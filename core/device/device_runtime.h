// The interface by which core uses the devices of this process: events in their streams, and memory. Core knows no
// driver: ops/gpu implements it, and opens the driver on first use.
//
// Owned by the communicator; events and memory may outlive it. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hvd {

// A point in the order of a device's work: everything that was enqueued in one stream until then. Made by a
// DeviceRuntime, or by a backend for the end of what it has enqueued in its stream. Any thread.
class DeviceEvent : public std::enable_shared_from_this<DeviceEvent> {
 public:
  virtual ~DeviceEvent() = default;

  // Whether the device has reached this point. Throws Error if the device has failed.
  virtual bool happened() const = 0;

  // Whether it is not a point in time but a node of a graph into which the stream is captured, of which it only becomes
  // part by hold_up(). Then it counts as happened.
  virtual bool captured() const { return false; }

  // Makes a stream of the same device wait for this point. Does not block.
  virtual void hold_up(void* stream) const = 0;

  // Whether a stream that waits for `other` need not wait for this point, because `other` comes later in the same
  // stream. False if that is unknown.
  virtual bool precedes(const DeviceEvent& other) const = 0;
};

// In place of a stream: all streams of the device.
inline void* const kAllStreams = reinterpret_cast<void*>(UINTPTR_MAX);  // NOLINT(*-int-to-ptr)

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  // An event after all work in `stream` of this device so far (null: its default stream; kAllStreams: all of them).
  // Throws Unsupported that says what is missing, InvalidArgument if no such device exists.
  virtual std::shared_ptr<const DeviceEvent> record(int device, void* stream) = 0;

  // Device memory, uninitialised; null for zero bytes. Freed with the last reference, which may wait for the device.
  // Throws Error.
  virtual std::shared_ptr<void> allocate(int device, std::size_t bytes) = 0;
};

}  // namespace hvd

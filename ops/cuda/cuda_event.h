// A CUDA event that is recorded once, in the constructor. Shares ownership of the driver. Any thread.
#pragma once

#include <memory>

#include "core/device/device_runtime.h"
#include "ops/cuda/driver.h"

namespace hvd::cuda {

class RecordedEvent final : public DeviceEvent {
 public:
  // Records what is in `stream`, or in all streams of the device's primary context (kAllStreams). Throws Error.
  RecordedEvent(std::shared_ptr<Driver> driver, int device, Stream stream);
  ~RecordedEvent() override;
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;

  bool happened() const override;
  void hold_up(void* stream) const override;

 private:
  void record(Stream stream) const;
  void record_all_streams() const;

  const std::shared_ptr<Driver> driver_;
  const int device_;
  Event event_ = nullptr;
};

}  // namespace hvd::cuda

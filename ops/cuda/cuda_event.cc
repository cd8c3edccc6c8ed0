#include "ops/cuda/cuda_event.h"

#include <utility>

namespace hvd::cuda {

RecordedEvent::RecordedEvent(std::shared_ptr<Driver> driver, int device, Stream stream)
    : driver_(std::move(driver)), device_(device) {
  const ContextScope context(*driver_, device_);
  driver_->check(driver_->call().create_event(&event_, kEventWithoutTiming), "cuEventCreate");
  if (const Result result = driver_->call().record_event(event_, stream); result != kSuccess) {
    driver_->call().destroy_event(event_);
    driver_->check(result, "cuEventRecord");
  }
}

// The driver keeps what the event stands for until it has happened.
RecordedEvent::~RecordedEvent() {
  try {
    const ContextScope context(*driver_, device_);
    driver_->call().destroy_event(event_);
  } catch (...) {  // a driver that fails has nothing to give back
  }
}

bool RecordedEvent::happened() const {
  const ContextScope context(*driver_, device_);
  const Result result = driver_->call().query_event(event_);
  if (result == kNotReady) return false;
  driver_->check(result, "cuEventQuery");
  return true;
}

void RecordedEvent::hold_up(void* stream) const {
  const ContextScope context(*driver_, device_);
  driver_->check(driver_->call().wait_event(static_cast<Stream>(stream), event_, 0), "cuStreamWaitEvent");
}

}  // namespace hvd::cuda

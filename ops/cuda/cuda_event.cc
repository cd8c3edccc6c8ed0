#include "ops/cuda/cuda_event.h"

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/device/device_runtime.h"

namespace hvd::cuda {

RecordedEvent::RecordedEvent(std::shared_ptr<Driver> driver, int device, Stream stream)
    : driver_(std::move(driver)), device_(device) {
  const ContextScope context(*driver_, device_);
  driver_->check(driver_->call().create_event(&event_, kEventWithoutTiming), "cuEventCreate");
  try {
    record(stream);
  } catch (...) {
    driver_->call().destroy_event(event_);
    throw;
  }
}

void RecordedEvent::record(Stream stream) const {
  if (stream == kAllStreams) return record_all_streams();
  driver_->check(driver_->call().record_event(event_, stream), "cuEventRecord");
}

void RecordedEvent::record_all_streams() const {
  const auto record = driver_->call().record_all_streams;
  if (record == nullptr) {
    throw Unsupported(
        "this CUDA driver cannot order an operation behind all streams of a GPU (cuCtxRecordEvent): install driver 555 "
        "(CUDA 12.5) or later; or set HVD_GPU_THROUGH_HOST=1, and TensorFlow's tensors go through the host's memory");
  }
  const Result result = record(driver_->context(device_), event_);
  if (result == kCaptureUnsupported) {
    throw Unsupported("a stream of GPU " + std::to_string(device_) +
                      " is being captured into a graph, and an operation behind all streams of it cannot begin then");
  }
  driver_->check(result, "cuCtxRecordEvent");
}

// The driver keeps a destroyed event's state until it has happened.
RecordedEvent::~RecordedEvent() {
  try {
    const ContextScope context(*driver_, device_);
    driver_->call().destroy_event(event_);
  } catch (...) {  // a failed driver has nothing to release
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

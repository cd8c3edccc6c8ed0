// The end of an operation that the engine has enqueued in a device's stream: pending, happened, or given up.
//
// Made by a backend, which keeps it until then and gives it up if the device or the job fails; held by the Completion
// of the operation, whose callers poll it or wait: no thread is woken when the device has finished. All functions: any
// thread.
#pragma once

#include <atomic>
#include <memory>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/status.h"
#include "core/device/device_runtime.h"

namespace hvd {

class DeviceCompletion {
 public:
  explicit DeviceCompletion(std::shared_ptr<const DeviceEvent> end) : end_(std::move(end)) {}

  // Happened, or given up.
  bool done();
  // True once done; false at the deadline. The driver's own waits have no deadline, so this polls: without a pause for
  // a short while, then at intervals that grow to kMaxPollInterval.
  bool wait(Deadline deadline);

  // The outcome. Ok also while pending.
  Status status() const;

  // Makes the stream wait for the end; the caller does not wait. Throws the reason if it was given up.
  void hold_up(void* stream);

  // No effect if it has happened already.
  void give_up(const Status& reason);

  static constexpr Duration kMaxPollInterval = std::chrono::microseconds(200);

 private:
  enum class State { open, happened, given_up };

  const std::shared_ptr<const DeviceEvent> end_;
  std::atomic<State> state_{State::open};
  mutable Mutex mutex_;  // held while state_ changes
  Status reason_ GUARDED_BY(mutex_);
};

}  // namespace hvd

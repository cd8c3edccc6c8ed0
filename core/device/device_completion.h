// The end of an operation that its engine has put into a device's stream: not happened yet, happened, or given up.
//
// Made by a backend, which keeps it until then and gives it up if the device or the job fails; held by the Work, whose
// callers ask and wait on their own: no thread is woken when a device is through. All functions: any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/device/device_event.h"

namespace hvd {

class DeviceCompletion {
 public:
  explicit DeviceCompletion(std::shared_ptr<const DeviceEvent> end) : end_(std::move(end)) {}

  // Happened, or given up.
  bool done();
  // True once done; false at the deadline. The driver's own waits have no deadline, so this asks again and again: at
  // once for a short while, then at intervals that grow to kLongestNap.
  bool wait(Deadline deadline);

  // How it ended. Ok also as long as it has not.
  Status status() const;

  // Has the stream go on only after the end; the caller does not wait. Throws the reason if it was given up.
  void hold_up(void* stream);

  // Unless it has happened already.
  void give_up(const Status& reason);

  static constexpr Duration kLongestNap = std::chrono::microseconds(200);

 private:
  enum class State { open, happened, given_up };

  const std::shared_ptr<const DeviceEvent> end_;
  std::atomic<State> state_{State::open};
  mutable std::mutex mutex_;  // held while state_ changes
  Status reason_;             // guarded by mutex_
};

}  // namespace hvd

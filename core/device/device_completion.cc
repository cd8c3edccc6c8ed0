#include "core/device/device_completion.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "core/base/error.h"

namespace hvd {

namespace {

// Polls before the first sleep: about as long as a small collective takes.
constexpr int kPollsBeforeSleep = 100;
constexpr Duration kFirstPollInterval = std::chrono::microseconds(10);

}  // namespace

bool DeviceCompletion::done() {
  if (state_.load(std::memory_order_acquire) != State::open) return true;
  bool happened = false;
  try {
    happened = end_->happened();
  } catch (const Error& error) {
    give_up(error.status());
    return true;
  }
  if (!happened) return false;
  const MutexLock lock(mutex_);
  State expected = State::open;  // if it was given up before, the device's result is void
  state_.compare_exchange_strong(expected, State::happened, std::memory_order_acq_rel);
  return true;
}

bool DeviceCompletion::wait(Deadline deadline) {
  Duration interval = kFirstPollInterval;
  for (int polls = 0; !done(); ++polls) {
    const TimePoint now = Clock::now();
    if (now >= deadline) return false;
    if (polls < kPollsBeforeSleep) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::min(interval, deadline - now));
    interval = std::min(interval * 2, kMaxPollInterval);
  }
  return true;
}

Status DeviceCompletion::status() const {
  const MutexLock lock(mutex_);
  return reason_;
}

void DeviceCompletion::hold_up(void* stream) {
  if (Status now = status(); !now.ok()) throw Error(now);
  if (state_.load(std::memory_order_acquire) == State::open || end_->captured()) end_->hold_up(stream);
}

void DeviceCompletion::give_up(const Status& reason) {
  const MutexLock lock(mutex_);
  if (state_.load(std::memory_order_relaxed) != State::open) return;
  reason_ = reason;
  state_.store(State::given_up, std::memory_order_release);
}

}  // namespace hvd

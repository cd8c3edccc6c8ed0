#include "core/collective/work.h"

#include "core/base/futex.h"

namespace hvd {

bool Work::wait(Deadline deadline) {
  set_awaited();
  std::uint32_t state = state_.load(std::memory_order_acquire);
  while (state != kDone) {
    if (state == kOpen && !state_.compare_exchange_weak(state, kSleptOn, std::memory_order_acquire)) continue;
    if (Clock::now() >= deadline) return false;
    futex_wait(state_, kSleptOn, deadline, FutexScope::process);
    state = state_.load(std::memory_order_acquire);
  }
  return true;
}

bool Work::complete(const Status& status) {
  status_ = status;
  return state_.exchange(kDone, std::memory_order_acq_rel) == kSleptOn;
}

void Work::wake() { futex_wake_all(state_, FutexScope::process); }

void Work::reset() {
  outputs.clear();
  received_splits.clear();
  last_joined = -1;
  on_device.reset();
  status_ = Status();
  awaited_.store(false, std::memory_order_relaxed);
  state_.store(kOpen, std::memory_order_relaxed);
}

}  // namespace hvd

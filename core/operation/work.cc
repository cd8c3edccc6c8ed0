#include "core/operation/work.h"

#include "core/base/futex.h"

namespace hvd {

bool Work::wait(Deadline deadline) {
  set_awaited();
  std::uint32_t state = state_.load(std::memory_order_acquire);
  while (state != kDone) {
    if (state == kOpen && !state_.compare_exchange_weak(state, kSleptOn, std::memory_order_acquire)) continue;
    if (Clock::now() >= deadline) return false;
    futex_wait(state_, state == kOpen ? kSleptOn : state, deadline, FutexScope::process);
    state = state_.load(std::memory_order_acquire);
  }
  return true;
}

void Work::call_when_done(void (*callback)(void*), void* context) {
  callback_ = callback;
  callback_context_ = context;
  std::uint32_t state = state_.load(std::memory_order_acquire);
  while (state != kDone) {
    // Also from kSleptOn, the state left by a thread whose deadline has passed.
    if (state_.compare_exchange_weak(state, kToCall, std::memory_order_acq_rel)) return;
  }
  callback(context);
}

bool Work::complete(const Status& status) {
  status_ = status;
  const std::uint32_t before = state_.exchange(kDone, std::memory_order_acq_rel);
  is_to_call_ = before == kToCall;
  return before != kOpen;
}

void Work::wake() {
  futex_wake_all(state_, FutexScope::process);
  if (is_to_call_) callback_(callback_context_);
}

void Work::reset() {
  outputs.clear();
  received_splits.clear();
  last_joined = -1;
  source = -1;
  on_device.reset();
  is_to_call_ = false;
  status_ = Status();
  awaited_.store(false, std::memory_order_relaxed);
  state_.store(kOpen, std::memory_order_relaxed);
}

}  // namespace hvd

#include "core/base/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace hvd {

namespace {

// The kernel takes the address of the word itself; std::atomic<uint32_t> has the word's representation.
long futex(const std::atomic<std::uint32_t>& word, int operation, FutexScope scope, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  const int flag = scope == FutexScope::process ? FUTEX_PRIVATE_FLAG : 0;
  return syscall(SYS_futex, &word, operation | flag, value, timeout, nullptr, 0);
}

timespec to_timespec(Duration duration) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

constexpr int kSpinsPerClockRead = 32;
constexpr Duration kSpinPerYield = std::chrono::microseconds(50);
constexpr Duration kBriefYield = std::chrono::microseconds(500);  // of a peer's part in a small collective, at most

// False if other threads use this CPU for longer.
bool yields_briefly() {
  const TimePoint started = Clock::now();
  sched_yield();
  return Clock::now() - started < kBriefYield;
}

}  // namespace

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline, FutexScope scope) {
  if (deadline == Deadline::max()) {
    futex(word, FUTEX_WAIT, scope, expected, nullptr);
    return;
  }
  const Duration remaining = deadline - Clock::now();
  if (remaining <= Duration::zero()) return;
  const timespec timeout = to_timespec(remaining);
  futex(word, FUTEX_WAIT, scope, expected, &timeout);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word, FutexScope scope) {
  futex(word, FUTEX_WAKE, scope, INT_MAX, nullptr);
}

void Signal::store_and_wake(std::uint32_t v) {
  // A plain store, so that the value leaves the core together with what was written beside it. Of the two changes to
  // `sleepers` one comes first: either the sleeper's, and we see it, or ours, and the sleeper sees the value.
  value.store(v, std::memory_order_release);
  if (sleepers.fetch_add(0, std::memory_order_acq_rel) != 0) futex_wake_all(value);
}

void Signal::increment_and_wake() {
  value.fetch_add(1, std::memory_order_release);
  if (sleepers.fetch_add(0, std::memory_order_acq_rel) != 0) futex_wake_all(value);
}

std::uint32_t Signal::spin(std::uint32_t old, const WaitPolicy& policy) const {
  std::uint32_t now = value.load(std::memory_order_acquire);
  const auto look_often = [&] {
    for (int i = 0; i < kSpinsPerClockRead && now == old; ++i) {
      cpu_relax();
      now = value.load(std::memory_order_acquire);
    }
  };
  if (policy.spin > Duration::zero()) {
    look_often();  // a change that comes at once needs no clock
    if (now == old) {
      const Deadline end = Clock::now() + policy.spin;
      do {
        look_often();
      } while (now == old && Clock::now() < end);
    }
  }
  for (int i = 0; i < policy.yields && now == old; ++i) {
    sched_yield();
    now = value.load(std::memory_order_acquire);
  }
  return now;
}

std::uint32_t Signal::wait_change(std::uint32_t old, Deadline deadline, const AbortFlag* abort) {
  std::uint32_t now = value.load(std::memory_order_acquire);
  if (now != old) return now;

  sleepers.fetch_add(1, std::memory_order_acq_rel);
  for (;;) {
    now = value.load(std::memory_order_acquire);
    if (now != old || Clock::now() >= deadline || (abort != nullptr && abort->raised())) break;
    futex_wait(value, old, abort == nullptr ? deadline : std::min(deadline, Clock::now() + kAbortPollInterval));
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  if (now == old && abort != nullptr) abort->check();
  return now;
}

std::uint32_t AdaptiveWait::wait_change(Signal& signal, std::uint32_t old, Deadline deadline, const AbortFlag* abort) {
  const std::uint32_t now = spin(signal, old, deadline);
  return now != old ? now : signal.wait_change(old, deadline, abort);
}

std::uint32_t AdaptiveWait::spin(const Signal& signal, std::uint32_t old, Deadline deadline) {
  std::uint32_t now = signal.value.load(std::memory_order_acquire);
  if (now == old && credit_.worth_spinning()) {
    now = signal.spin(old, policy_);
    credit_.spun(now != old);
  }
  if (now == old && policy_.idle_spin > Duration::zero() && idle_credit_.worth_spinning()) {
    now = spin_while_idle(signal, old, deadline);
  }
  return now;
}

// Between two looks at the clock it yields: a peer that waits for this CPU runs at once, and whether anybody else wants
// it shows in the time that this takes.
std::uint32_t AdaptiveWait::spin_while_idle(const Signal& signal, std::uint32_t old, Deadline deadline) {
  const TimePoint started = Clock::now();
  for (TimePoint looked = started; looked < deadline; looked = Clock::now()) {
    const WaitPolicy look{.spin = std::min(kSpinPerYield, deadline - looked)};
    const bool is_idle = signal.spin(old, look) != old || yields_briefly();
    const std::uint32_t now = signal.value.load(std::memory_order_acquire);
    if (now == old && is_idle && looked - started < policy_.idle_spin) continue;
    idle_credit_.spun(now != old && is_idle);
    return now;
  }
  return old;
}

}  // namespace hvd

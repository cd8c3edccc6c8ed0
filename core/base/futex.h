// Waiting for another thread or process: how long to spin first, and sleeping on a 32-bit word, in private or in shared
// memory, with wakeups from any process that maps it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"

namespace hvd {

// How a thread waits for another one: spin, then yield, then spin on while the CPU would be idle, then sleep in the
// kernel.
//
// With a core for each rank a short spin is an order of magnitude faster than a futex; with more ranks than cores it
// takes the core from the rank that is waited for. sched_yield does not cross sessions where the kernel groups them
// (sched_autogroup), so yields are few and the wait ends in a futex.
struct WaitPolicy {
  Duration spin{0};       // busy wait before anything else
  int yields = 0;         // sched_yield calls after that
  Duration idle_spin{0};  // busy wait after the yields, until another thread wants the CPU; only by AdaptiveWait
};

// Ranks, and the CPUs for which they compete: those that any of them may run on, each counted once.
struct CpuUse {
  int ranks = 1;
  int cpus = 0;

  bool oversubscribed() const { return ranks > cpus; }
};

inline constexpr WaitPolicy kOversubscribedPolicy{.spin = Duration{0}, .yields = 64};

// Pure.
inline WaitPolicy wait_policy_for(const CpuUse& use) {
  return use.oversubscribed() ? kOversubscribedPolicy : WaitPolicy{.spin = 20us};
}
// The same for a caller, which has nothing else to do: it goes on spinning while its CPU would otherwise be idle. An
// idle virtual CPU halts, and waking it takes tens of microseconds, or milliseconds if the hypervisor has given its
// physical CPU to another machine.
inline WaitPolicy caller_wait_policy_for(const CpuUse& use) {
  WaitPolicy policy = wait_policy_for(use);
  if (!use.oversubscribed()) policy.idle_spin = 20ms;
  return policy;
}
// The same for messages from another host, which take longer than a cache line. A sleep lengthens a wait of 200 us by
// less than a tenth; with 500 us a ring over 1 Gb/s never slept, and took five times the CPU time.
inline WaitPolicy network_wait_policy_for(const CpuUse& use) {
  return use.oversubscribed() ? kOversubscribedPolicy : WaitPolicy{.spin = 200us};
}

// Decides whether spinning pays off at one place in the code, by the outcome of its last waits. If a peer is mostly
// busy with something else, spinning would only take CPU time from the program.
class SpinCredit {
 public:
  bool worth_spinning() { return credit_ > 0 || ++skipped_ % kProbe == 0; }
  void spun(bool paid) { credit_ = paid ? kFull : std::max(0, credit_ - 1); }

 private:
  static constexpr int kFull = 3;         // this many unsuccessful spins in a row end it
  static constexpr unsigned kProbe = 16;  // then one wait in so many tries again
  int credit_ = kFull;
  unsigned skipped_ = 0;
};

// Who may sleep on a word: any process that maps it, or only threads of this process, which is faster in the kernel.
enum class FutexScope { shared, process };

// Sleeps while word == expected, at most until the deadline; may return spuriously.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline,
                FutexScope scope = FutexScope::shared);

// Wakes all sleepers on the word. Makes a system call even if there are none: see Signal.
void futex_wake_all(const std::atomic<std::uint32_t>& word, FutexScope scope = FutexScope::shared);

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A 32-bit word that one side stores and others wait for, in private or shared memory (all zero bytes initially). The
// count of sleepers is in another cache line than the value, so that waking costs a system call only if a thread
// sleeps. The bytes between them belong to the writer: a few words that arrive with the value.
struct alignas(128) Signal {
  static constexpr std::size_t kPayloadBytes = 112;

  std::atomic<std::uint32_t> value{0};
  std::uint32_t tag = 0;
  alignas(8) std::array<std::byte, kPayloadBytes> payload;
  std::atomic<std::uint32_t> sleepers{0};

  // Publishes everything written before, then wakes. One writer at a time, unless the callers order their writes.
  void store_and_wake(std::uint32_t v);
  // Adds one and wakes; any number of writers.
  void increment_and_wake();

  // Sleeps until value != old (acquire) and returns the new value, or returns `old` at the deadline. Checks `abort`, if
  // given, within kAbortPollInterval, and throws its reason.
  std::uint32_t wait_change(std::uint32_t old, Deadline deadline, const AbortFlag* abort);
  // Busy-waits and yields as the policy says, without idle_spin; returns `old` if nothing has changed.
  std::uint32_t spin(std::uint32_t old, const WaitPolicy& policy) const;
};

static_assert(sizeof(Signal) == 128 && offsetof(Signal, sleepers) >= 64);

// Waits at one place in the code: spins first if that has paid off lately, then sleeps. One thread at a time, not
// always the same one.
class AdaptiveWait {
 public:
  explicit AdaptiveWait(const WaitPolicy& policy) : policy_(policy) {}

  // As Signal::wait_change.
  std::uint32_t wait_change(Signal& signal, std::uint32_t old, Deadline deadline, const AbortFlag* abort);
  // Only its first phase, spinning.
  std::uint32_t spin(const Signal& signal, std::uint32_t old, Deadline deadline = Deadline::max());

 private:
  std::uint32_t spin_while_idle(const Signal& signal, std::uint32_t old, Deadline deadline);

  WaitPolicy policy_;
  SpinCredit credit_, idle_credit_;
};

// True if sequence number a is at or after b, across wrap-around.
inline bool sequence_reached(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) >= 0; }

}  // namespace hvd

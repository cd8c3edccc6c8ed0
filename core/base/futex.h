// Sleeping on a 32-bit word, in private or in shared memory, with wakeups from any process that maps it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/wait_policy.h"

namespace hvd {

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
  // Busy-waits as the policy says; returns `old` if nothing has changed.
  std::uint32_t spin(std::uint32_t old, const WaitPolicy& policy) const;
};

static_assert(sizeof(Signal) == 128 && offsetof(Signal, sleepers) >= 64);

// Waits at one place in the code: spins first if that has paid off lately, then sleeps. One thread.
class AdaptiveWait {
 public:
  explicit AdaptiveWait(const WaitPolicy& policy) : policy_(policy) {}

  // As Signal::wait_change.
  std::uint32_t wait_change(Signal& signal, std::uint32_t old, Deadline deadline, const AbortFlag* abort);
  // Only its first phase, spinning.
  std::uint32_t spin(const Signal& signal, std::uint32_t old);

 private:
  WaitPolicy policy_;
  SpinCredit credit_;
};

// True if sequence number a is at or after b, across wrap-around.
inline bool sequence_reached(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) >= 0; }

}  // namespace hvd

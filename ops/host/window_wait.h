// How a rank waits for the others in a window (window.h): it spins, then sleeps, until the deadline of the collective
// or the AbortFlag ends the wait. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "ops/host/window_memory.h"

namespace hvd {

class WindowWait {
 public:
  using Milestone = WindowMemory::Milestone;
  // Returns "rank 2 on host-b (pid 1234)" for a rank of this host.
  using Describe = std::function<std::string(int local_rank)>;

  // `abort` may be null. The memory outlives the object.
  WindowWait(const WindowMemory& memory, const AbortFlag* abort, Describe describe);

  void set_policy(const WaitPolicy& policy);
  void set_timeout(Duration timeout) { timeout_ = timeout; }  // of one wait
  // See Backend::set_late_callback.
  void set_late_callback(Duration timeout, std::function<bool()> late);

  // `what` (a literal) names the collective in errors. Until all have arrived in it, waits use a policy of their own:
  // other ranks may not have entered the collective at all, while those that have will progress soon.
  void begin(const char* what) {
    what_ = what;
    arriving_ = true;
  }
  void end_arrival() { arriving_ = false; }
  const char* what() const { return what_; }

  // Waits until the signal, of this milestone, has the number `target`. `asking`: the others may never arrive unless
  // the late callback asks them to decline. Throws Timeout, which names the ranks that are late, or the reason of the
  // AbortFlag.
  void await(Signal& signal, std::uint32_t target, Milestone milestone, bool asking);

 private:
  std::uint32_t wait_late(Signal& signal, std::uint32_t seen);
  [[noreturn]] void throw_timeout(std::uint32_t target, Milestone milestone) const;

  const WindowMemory& memory_;
  const AbortFlag* const abort_;
  const Describe describe_;
  AdaptiveWait arrival_wait_{kOversubscribedPolicy};
  AdaptiveWait progress_wait_{kOversubscribedPolicy};
  bool arriving_ = true;
  const char* what_ = "";
  Duration timeout_{};
  Duration late_timeout_ = Duration::max();
  std::function<bool()> late_;
};

}  // namespace hvd

#include "ops/host/window_wait.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hvd {

WindowWait::WindowWait(const WindowMemory& memory, const AbortFlag* abort, Describe describe)
    : memory_(memory), abort_(abort), describe_(std::move(describe)) {}

void WindowWait::set_policy(const WaitPolicy& policy) {
  arrival_wait_ = AdaptiveWait(policy);
  progress_wait_ = AdaptiveWait(policy);
}

void WindowWait::set_late_callback(Duration timeout, std::function<bool()> late) {
  late_timeout_ = timeout;
  late_ = std::move(late);
}

void WindowWait::await(Signal& signal, std::uint32_t target, Milestone milestone, bool asking) {
  std::uint32_t seen = signal.value.load(std::memory_order_acquire);
  if (!sequence_reached(seen, target)) {
    seen = (arriving_ ? arrival_wait_ : progress_wait_).spin(signal, seen);
  }
  if (!sequence_reached(seen, target) && asking && late_) seen = wait_late(signal, seen);
  if (!sequence_reached(seen, target)) {
    const Deadline deadline = deadline_after(timeout_);
    do {
      const std::uint32_t now = signal.wait_change(seen, deadline, abort_);
      if (now == seen) throw_timeout(target, milestone);
      seen = now;
    } while (!sequence_reached(seen, target));
  }
  if (seen - target > 1) throw Internal(std::string(what_) + ": the ranks of this host are out of step");
}

std::uint32_t WindowWait::wait_late(Signal& signal, std::uint32_t seen) {
  for (;;) {
    const std::uint32_t now = signal.wait_change(seen, deadline_after(std::min(late_timeout_, timeout_)), abort_);
    if (now != seen || !late_()) return now;
  }
}

void WindowWait::throw_timeout(std::uint32_t target, Milestone milestone) const {
  std::string late;
  for (int rank = 0; rank < memory_.ranks; ++rank) {
    const Signal& signal = memory_.signal(rank, milestone, target);
    if (sequence_reached(signal.value.load(std::memory_order_relaxed), target)) continue;
    late += (late.empty() ? "" : ", ") + describe_(rank);
  }
  if (late.empty()) late = "the last rank, which has begun,";
  const auto waited = std::to_string(seconds(timeout_));
  throw Timeout(std::string(what_) + " in shared memory: waited " + waited.substr(0, waited.find('.') + 2) + " s for " +
                late + (milestone == Milestone::published ? " to begin" : " to do its part"));
}

}  // namespace hvd

// How a thread waits for another one: spin, then yield, then sleep in the kernel.
//
// With a core for each rank a short spin is an order of magnitude faster than a futex; with more ranks than cores it
// takes the core from the rank that is waited for. sched_yield does not cross sessions where the kernel groups them
// (sched_autogroup), so yields are few and the wait ends in a futex.
#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace hvd {

struct WaitPolicy {
  Duration spin{0};  // busy wait before anything else
  int yields = 0;    // sched_yield calls before the futex
};

// If there are more ranks than CPUs.
inline constexpr WaitPolicy kOversubscribedPolicy{.spin = Duration{0}, .yields = 64};

// Pure. `ranks_on_host` compete for `cpus`, the number of CPUs that any of them may run on.
WaitPolicy wait_policy_for(int ranks_on_host, int cpus);
// The same for messages from another host, which take longer than a cache line.
WaitPolicy network_wait_policy_for(int ranks_on_host, int cpus);

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

}  // namespace hvd

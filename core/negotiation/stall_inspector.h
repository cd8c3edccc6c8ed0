// Who keeps the others waiting: decides when to look, what to report, and what to give up.
//
// Pure; owned by the Coordinator. Costs nothing while operations come and go: it looks at them only when the oldest
// one may have waited for too long.
//
// A notice goes out when some operation has waited for a whole warning interval. It lists everything that has waited
// for at least half of one, so that a burst of submissions gives one notice. The next one comes when that has changed,
// an interval later at the earliest, then two, four, ... until nothing has waited that long.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/collective/collective.h"
#include "core/negotiation/request_check.h"

namespace hvd {

struct WaitingOperation {
  std::string name;
  Collective collective = Collective::allreduce;
  TimePoint since{};
  std::vector<int> missing;  // global ranks that have not asked for it, ascending
};

// "rank 2 on host-b (pid 1234) and rank 5 on ..."; more than a few as ranges: "ranks 1-15, 20".
std::string describe_ranks(const std::vector<int>& ranks, const DescribeRank& describe_rank);

// For an operation that has reached the limit.
Status stall_status(const WaitingOperation& operation, TimePoint now, const DescribeRank& describe_rank);

class StallInspector {
 public:
  // Zero turns warnings or the limit off.
  StallInspector(Duration warning, Duration limit) : warning_(warning), limit_(limit) {}

  void started(TimePoint now) {
    if (waiting_++ == 0) plan_check(now);
  }
  void ended() {
    if (--waiting_ == 0) forget();
  }

  bool nothing_waits() const { return waiting_ == 0; }

  // When inspect() is to be called; Deadline::max() while nothing waits.
  Deadline next_check() const { return next_check_; }

  struct Findings {
    std::string notice;                // empty: nothing to say
    std::vector<std::size_t> expired;  // of the operations given: those that reached the limit
  };
  // `operations`: all that wait, oldest first.
  Findings inspect(std::span<const WaitingOperation> operations, TimePoint now, const DescribeRank& describe_rank);

 private:
  // An operation, and who is missing.
  using Stalled = std::vector<std::pair<std::string, std::vector<int>>>;

  void plan_check(TimePoint oldest);
  void forget();
  Stalled stalled(std::span<const WaitingOperation> operations, TimePoint now) const;
  std::string notice(std::span<const WaitingOperation> operations, TimePoint now,
                     const DescribeRank& describe_rank) const;

  Duration warning_;
  Duration limit_;
  std::size_t waiting_ = 0;
  Stalled told_;      // by the last notice
  Duration pause_{};  // after it
  TimePoint quiet_until_ = TimePoint::min();
  Deadline next_check_ = Deadline::max();
};

}  // namespace hvd

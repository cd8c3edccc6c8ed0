// Finds the ranks that the others wait for: decides when to check, what to report, and what to give up.
//
// Pure; owned by the Coordinator. Costs nothing while operations come and go: it checks them only when the oldest one
// may have waited for too long.
//
// A warning is issued when an operation has waited for a whole warning interval. It lists everything that has waited
// for at least half of one, so that a burst of submissions causes one warning. The next one is issued when that has
// changed, an interval later at the earliest, then two, four, ... until nothing has waited that long.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/control/protocol/agreement.h"
#include "core/tensor/collective.h"

namespace hvd {

struct WaitingOperation {
  std::string name;
  Collective collective = Collective::allreduce;
  TimePoint since{};
  std::vector<int> missing;  // ranks of the set that have not asked for it, ascending
};

class StallInspector {
 public:
  // Zero disables warnings or the limit. `job_ranks`: each rank's number in the job, by which people know it; empty:
  // the same.
  StallInspector(Duration warning, Duration limit, DescribeRank describe_rank, std::vector<int> job_ranks = {});

  void started(TimePoint now);
  void ended();

  bool nothing_waits() const;

  // When inspect() must be called; Deadline::max() while nothing waits.
  Deadline next_check() const;

  struct Findings {
    std::string warning;               // empty: nothing to report
    std::vector<std::size_t> expired;  // indices of the operations that have reached the limit
  };
  // `operations`: all waiting operations, oldest first.
  Findings inspect(std::span<const WaitingOperation> operations, TimePoint now);
  // The error of an operation that has reached the limit.
  Status status_of_expired(const WaitingOperation& operation, TimePoint now) const;

  // "rank 2 on host-b (pid 1234) and rank 5 on ..."; more than a few as ranges: "ranks 1-15, 20".
  std::string describe(std::vector<int> ranks) const;

 private:
  // An operation, and its missing ranks.
  using Stalled = std::vector<std::pair<std::string, std::vector<int>>>;

  void plan_check(TimePoint oldest);
  void forget();
  Stalled stalled(std::span<const WaitingOperation> operations, TimePoint now) const;
  std::string warning(std::span<const WaitingOperation> operations, TimePoint now) const;

  const Duration warning_;
  const Duration limit_;
  const DescribeRank describe_rank_;
  const std::vector<int> job_ranks_;
  std::size_t waiting_ = 0;
  Stalled last_warning_;  // the content of the last warning
  Duration pause_{};      // after that warning
  TimePoint quiet_until_ = TimePoint::min();
  Deadline next_check_ = Deadline::max();
};

}  // namespace hvd

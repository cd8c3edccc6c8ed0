// Queries the status of all ranks: asks every host, and collects the answers until a deadline. Main thread only; never
// blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/processes/event_loop.h"
#include "launcher/watch/stragglers.h"

namespace hvd::launcher {

inline constexpr Duration kStatusQueryTimeout = 1s;  // ranks of hosts that have not answered by then have no status

class StatusQueries {
 public:
  // Called with all ranks, ascending; those that have not answered have no status.
  using Done = std::function<void(std::vector<StatusOfRank>)>;

  StatusQueries(EventLoop& loop, const std::vector<HostPlan>& plans, const std::vector<std::unique_ptr<Host>>& hosts);

  // Calls `done` once, possibly before ask() returns.
  void ask(bool with_stacks, Done done);
  // The answer of a host. Answers to unknown questions, and statuses of other hosts' ranks, are ignored.
  void answered(int host, std::uint64_t question, std::vector<RankStatus> statuses);
  void host_lost(int host);
  bool empty() const { return open_.empty(); }

 private:
  struct StatusQuery {
    std::set<int> missing;  // hosts
    std::vector<StatusOfRank> ranks;
    Deadline deadline;
    Done done;
  };

  void finish(std::uint64_t question);
  void on_time();
  void set_timer();

  const std::vector<HostPlan>& plans_;
  const std::vector<std::unique_ptr<Host>>& hosts_;
  std::set<int> lost_;
  std::map<std::uint64_t, StatusQuery> open_;
  std::uint64_t last_question_ = 0;
  Timer timer_;
};

}  // namespace hvd::launcher

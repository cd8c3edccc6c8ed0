// What all ranks are doing: asks every host, and waits for those that answer, until a deadline. Main thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/loop/event_loop.h"
#include "launcher/watch/stragglers.h"

namespace hvd::launcher {

inline constexpr Duration kStatusQueryTimeout = 1s;  // hosts that have not answered by then are left out

class StatusQueries {
 public:
  // All ranks, ascending; without a status those that have not answered.
  using Done = std::function<void(std::vector<StatusOfRank>)>;

  StatusQueries(EventLoop& loop, const std::vector<HostPlan>& plans, const std::vector<std::unique_ptr<Host>>& hosts);

  // Calls `done` once, maybe before it returns.
  void ask(bool with_stacks, Done done);
  // What a host has answered. What was not asked, and what is of another host's ranks, is left out.
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

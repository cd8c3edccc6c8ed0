// What all ranks are doing: asks every host, and waits for those that answer, until a deadline. Main thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "launcher/event_loop.h"
#include "launcher/host.h"
#include "launcher/who_is_behind.h"

namespace hvd::launcher {

inline constexpr Duration kInquiryTime = 1s;  // hosts that have not answered by then are left out

class Inquiries {
 public:
  // All ranks, ascending; those that nothing was heard of without a standing.
  using Done = std::function<void(std::vector<RankStanding>)>;

  Inquiries(EventLoop& loop, const std::vector<HostPlan>& plans, const std::vector<std::unique_ptr<Host>>& hosts);

  // Calls `done` once, maybe before it returns.
  void ask(bool with_stacks, Done done);
  // What a host has answered. What was not asked, and what is of another host's ranks, is left out.
  void answered(int host, std::uint64_t question, std::vector<Standing> standings);
  void host_lost(int host);
  bool empty() const { return open_.empty(); }

 private:
  struct Inquiry {
    std::set<int> missing;  // hosts
    std::vector<RankStanding> ranks;
    Deadline deadline;
    Done done;
  };

  void finish(std::uint64_t question);
  void on_time();
  void set_timer();

  const std::vector<HostPlan>& plans_;
  const std::vector<std::unique_ptr<Host>>& hosts_;
  std::set<int> lost_;
  std::map<std::uint64_t, Inquiry> open_;
  std::uint64_t last_question_ = 0;
  Timer timer_;
};

}  // namespace hvd::launcher

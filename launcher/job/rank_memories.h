// Owns the RankMemory of each rank on this machine until the job ends, beyond the rank's death. Reads them when the job
// queries the status, and checks once a second whether ranks are stalled. Main thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "launcher/job/host.h"
#include "launcher/job/rank_memory.h"
#include "launcher/loop/event_loop.h"

namespace hvd::launcher {

class RankMemories {
 public:
  // `host` is this machine's number for the listener.
  RankMemories(EventLoop& loop, HostListener& listener, int host);

  // Creates the memory of a rank that is about to start. Null if that fails; the rank then starts without it, and with
  // `verbose` the user is told once.
  const RankMemory* make(int rank, bool verbose);
  // `pid` leads its process group.
  void started(int rank, pid_t pid);
  // The rank no longer counts as stalled, but is still in the answers of ask(). Returns why the job had ended for it.
  JobEnding ended(int rank);
  // From now on stalls are reported to the listener.
  void watch_for_stalls() { look_for_stalls(); }

  // Reports to the listener when all ranks here have completed init; they are polled every 10 ms until then.
  void watch_initialization();

  // Sends the statuses to the listener: during the call, or with stacks once all processes that could be asked for them
  // have answered, 500 ms later at most.
  void ask(std::uint64_t question, bool with_stacks);

 private:
  struct Entry {
    std::unique_ptr<RankMemory> memory;
    pid_t pid = -1;
    bool is_asked = false;
    bool has_ended = false;
  };
  struct Question {
    std::uint64_t number;
    Deadline deadline;
  };

  void tell(std::uint64_t question, bool with_stacks);
  void ask_ranks();
  void look_for_answers();
  void look_for_stalls();
  void look_for_initialization();

  EventLoop& loop_;
  HostListener& listener_;
  const int host_;
  std::map<int, Entry> entries_;    // by rank
  std::deque<Question> questions_;  // for stacks; the ranks are asked once for all of them
  Timer answer_timer_, stall_timer_, init_timer_;
  bool has_complained_ = false;
  bool stalled_ = false;
  int announcements_ = 0, looks_ = 0;  // during this stall
  bool awaits_init_ = false;
};

}  // namespace hvd::launcher

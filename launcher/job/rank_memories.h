// The memory of this machine's ranks (rank_memory.h), for as long as the job: kept beyond their deaths, read when the
// job asks, and looked at once a second for whether ranks are stalled. Main thread only.
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
  // `host` is what the listener calls this machine.
  RankMemories(EventLoop& loop, HostListener& listener, int host);

  // For a rank that is about to start. Null: there is none to be had, of which `verbose` tells the user, once; the
  // rank then starts without.
  const RankMemory* make(int rank, bool verbose);
  // It leads its process group.
  void started(int rank, pid_t pid);
  // What it has left undone stalls nobody; it is told all the same when somebody asks. Returns why the job had ended
  // for it.
  JobEnding ended(int rank);
  // From now on the listener hears of stalls.
  void watch_for_stalls() { look_for_stalls(); }

  // And when all ranks here have finished init, to 10 ms: until then they are polled that often.
  void watch_initialization();

  // The listener gets the statuses: at once, or when all processes that could be asked for their stacks have answered,
  // 500 ms later at most.
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
  std::deque<Question> questions_;  // for stacks; one is put to the ranks at a time
  Timer answer_timer_, stall_timer_, init_timer_;
  bool has_complained_ = false;
  bool stalled_ = false;
  int announcements_ = 0, looks_ = 0;  // of this stall
  bool awaits_init_ = false;
};

}  // namespace hvd::launcher

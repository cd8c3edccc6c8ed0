// Shared memory through which the launcher reads the state of local ranks, also after their death. Main thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/net/shared_memory.h"
#include "launcher/job/host.h"
#include "launcher/processes/event_loop.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

// Created before the rank starts, inherited and written by it. It consists of two anonymous files: the flight recorder
// (core/flight), and the stacks of a Python process. The second begins with a line in which the process announces how
// to ask for them, "hvd-stacks 1 SIGNAL PID PACKAGE" (hvd/stacks.py); the output of Python's faulthandler on that
// signal follows. Both processes share the file offset, so a request first clears the file and seeks back to the
// beginning. The size is fixed; nothing is written beyond it.
class RankMemory {
 public:
  // Throws Internal if there is no memory or descriptor left.
  RankMemory();

  // The environment variables with the numbers of the descriptors, under which the rank must inherit them. They are
  // close-on-exec, so that other ranks do not inherit them; the child clears FD_CLOEXEC.
  std::vector<std::pair<std::string, std::string>> variables() const;
  std::vector<int> descriptors() const;

  // Whether the rank has detected a stall that is not over; or has been waiting in init, or for a parameter server, for
  // its stall time; or is such a server, and requests there have waited for a slower worker for that time; or has begun
  // nothing for that time and has been in an operation since. Called periodically: usually reads a few words.
  bool is_stalled(TimePoint now);

  // Whether the rank has completed init together with all ranks of the job.
  bool has_initialized() const;
  // Why the job has ended for the rank.
  JobEnding job_ending() const;

  // Asks the process that has announced itself for its stacks, if it is in process group `group` and catches the
  // signal, so that the signal cannot kill it. Returns false if there is none. The answer arrives a few milliseconds
  // later, or never: poll answer_is_complete() until a deadline.
  bool ask_for_stacks(pid_t group);
  // The answer is complete if it is not empty and has not grown since the last call.
  bool answer_is_complete();
  StackAnswer answer() const;

  // What the rank is doing, or was doing when it died; `with_stacks` includes the answer. The rank's number is the one
  // that the process has recorded; the caller replaces it with the one it started.
  RankStatus status(bool with_stacks, pid_t group, TimePoint now) const;

 private:
  std::span<const std::byte> recorded() const;

  SharedMemory recorder_;
  SharedMemory stacks_;
  std::size_t seen_ = 0;  // size of the answer at the last call of answer_is_complete()
  // The state at the last call of is_stalled(), and since when it has not changed.
  using Seen = std::pair<std::optional<TimePoint>, std::uint64_t>;  // the epoch, and operations begun in it
  Seen last_seen_;
  TimePoint since_{};
  bool all_ended_ = true;
};

// Owns the RankMemory of each rank on this machine until the job ends, beyond the rank's death. Reads them when the job
// queries the status, and checks once a second whether ranks are stalled.
class RankMemories {
 public:
  // `host` is this machine's number for the listener.
  RankMemories(EventLoop& loop, HostListener& listener, int host);

  // The memory of a process that is about to start; null if none can be made, of which `verbose` tells the user once.
  const RankMemory* make(const RankPlan& process, bool verbose);
  // `pid` leads its process group.
  void started(int rank, pid_t pid);
  // The rank no longer counts as stalled, but is still in the answers of ask(). Returns why the job had ended for it.
  JobEnding ended(int rank);
  // Releases the memory of a process that has ended, where there are ever more: servers, and all of an elastic job.
  void forget(int rank);
  bool is_server(int rank) const;
  // From now on stalls are reported to the listener.
  void watch_for_stalls();

  // Reports to the listener when all ranks here have completed init; they are polled every 10 ms until then.
  void watch_initialization();

  // Sends the statuses to the listener: at once, or with stacks when all have answered, 500 ms later at most.
  void query(std::uint64_t query_id, bool with_stacks);

 private:
  struct Entry {
    std::unique_ptr<RankMemory> memory;
    pid_t pid = -1;
    bool is_server = false;
    bool is_asked = false;
    bool has_ended = false;
  };
  struct Query {
    std::uint64_t id;
    Deadline deadline;
  };

  void answer(std::uint64_t query_id, bool with_stacks);
  void ask_ranks();
  void look_for_answers();
  void look_for_stalls();
  void look_for_initialization();

  EventLoop& loop_;
  HostListener& listener_;
  const int host_;
  std::map<int, Entry> entries_;  // by rank
  std::deque<Query> queries_;     // for stacks; the ranks are asked once for all of them
  Timer answer_timer_, stall_timer_, init_timer_;
  bool has_complained_ = false;
  bool stalled_ = false;
  int announcements_ = 0, looks_ = 0;  // during this stall
  bool awaits_init_ = false;
};

}  // namespace hvd::launcher

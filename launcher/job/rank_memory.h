// The memory that a rank leaves behind: made before it starts, inherited by it, written by it, and read here whenever
// somebody asks, also after its death. Event loop's thread.
//
// Two anonymous files: the flight recorder (core/flight), and what a Python process writes of its stacks. The second
// begins with a line by which the process says how it is to be asked: "hvd-stacks 1 SIGNAL PID PACKAGE"
// (hvd/stacks.py); what Python's faulthandler writes on that signal comes behind that. Both processes share the place
// to write at, so that asking begins by going back to the beginning of a cleared file, and it has a fixed size, beyond
// which nothing is written.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/net/shared_memory.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

class RankMemory {
 public:
  // Throws Internal: there is no memory or descriptor to be had.
  RankMemory();

  // What the rank's environment has to say, with the descriptors' numbers, which it is to inherit under these: they are
  // closed by exec unless the child takes FD_CLOEXEC off, for other ranks are not to have them.
  std::vector<std::pair<std::string, std::string>> variables() const;
  std::vector<int> descriptors() const { return {recorder_.fd(), stacks_.fd()}; }

  // Whether the rank has noticed a stall that is not over; or waits in init for as long as it said would be a stall; or
  // has begun nothing for as long, and is in an operation since then. To be asked now and then: a few words are read as
  // a rule.
  bool is_stalled(TimePoint now);

  // Whether the rank has been in init, and left it because all ranks of the job were there.
  bool has_initialized() const { return read_flight_progress(recorded()).has_initialized; }

  // Why the job has ended for the rank.
  JobEnding job_ending() const { return read_job_ending(recorded()); }

  // Asks for the stacks of the process that has announced to answer, if it is in process group `group`, and catches
  // that signal: it cannot be harmed. False if there is none. The answer is there a few milliseconds later, or never:
  // look for it in answer() until it is complete or a deadline passes.
  bool ask_for_stacks(pid_t group);
  // What has been written since; complete if it was the same at the last look, and there is something.
  bool answer_is_complete();
  StackAnswer answer() const;

  // What the rank is doing; `with_stacks`: and what it has answered. Of a dead one, what it was doing. The rank's
  // number is what the process says: whoever started it knows better.
  RankStatus status(bool with_stacks, pid_t group, TimePoint now) const;

 private:
  std::span<const std::byte> recorded() const { return {recorder_.data(), recorder_.size()}; }

  SharedMemory recorder_;
  SharedMemory stacks_;
  std::size_t seen_ = 0;  // of the answer, at the last look
  // What was seen at the last look of is_stalled(), and since when it is so.
  using Seen = std::pair<std::optional<TimePoint>, std::uint64_t>;  // the epoch, and operations begun in it
  Seen last_look_;
  TimePoint since_{};
  bool all_ended_ = true;
};

}  // namespace hvd::launcher

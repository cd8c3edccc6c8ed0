// When steps repeat: sees what executes, and says when the ranks may stop to negotiate, and what they do then.
//
// Pure; owned by the Coordinator. A *step* is a run of executes in which no operation comes twice. It is over when one
// comes again, and ends then at the last moment at which nothing was under way, if there was one: where steps begin
// does not depend on the order within them. Or it is over when it has the very operations of the step before, at such a
// moment (at any, in programs that never pause). After a step that is like the one before there is a schedule: the
// step's operations in the order in which they were ready. Operations are known by their cache slots.
//
// A group of the schedule may be fused. Two operations are in one group only if every rank had asked for the later one
// before anything of the group was performed: else a program that waits for one before it submits the other would wait
// for ever in a locked schedule, and break it each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/negotiation/response.h"

namespace hvd {

class ScheduleLearner {
 public:
  // The operation in `slot` executes in message `number`; a rank that asked for it last had applied `applied` messages.
  void executed(std::uint32_t slot, std::uint64_t number, std::uint64_t applied);

  // Nothing is under way: whatever the coordinator knows that ranks have asked for has been executed. (What nodes of
  // the control tree hold back it does not know: steps are then cut elsewhere.)
  void paused();

  // Something that is no part of any step; or a slot has got another meaning.
  void disturbed();

  // There is one from the last execute of a step that is like the one before until the next execute.
  bool has_schedule() const { return !ready_.empty(); }
  Schedule schedule() const;

  // The schedule was given up after so many performed steps. One that did not pay makes the next take longer to come,
  // until there is one that pays, or would have.
  void given_up(std::uint64_t steps);

  // Whether the slot is in the schedule.
  bool has(std::uint32_t slot) const { return slot < previous_.size() && previous_[slot]; }

 private:
  struct Executed {
    std::uint32_t slot;
    std::uint64_t number;
    std::uint64_t applied;
  };
  using SlotSet = std::vector<bool>;

  bool complete() const { return known_ == previous_size_ && known_ == step_.size(); }
  void add(const Executed& operation);
  void cut();
  void end_step();
  void end_run();

  std::vector<Executed> step_;
  SlotSet in_step_;
  std::size_t known_ = 0;         // of them, in the previous step
  std::size_t paused_after_ = 0;  // so many of them, last
  bool pauses_ = false;           // the program does, as a rule

  SlotSet previous_;
  std::size_t previous_size_ = 0;
  std::vector<Executed> ready_;  // the step that has just ended, if it was like the one before
  unsigned repetitions_ = 0;     // of the previous step, in a row
  unsigned needed_ = 1;
};

}  // namespace hvd

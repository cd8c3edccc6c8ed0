// Detects that steps repeat: observes what executes, and derives the schedule to perform without negotiation.
//
// Pure; owned by the Coordinator. A *step* is a sequence of executes in which no operation occurs twice. It is over
// when one occurs again, and ends then at the last moment at which nothing was pending, if there was one: so the
// boundaries of steps do not depend on the order within them. It is also over when it has exactly the operations of the
// step before, at such a moment (at any moment, in programs that never pause). A step that equals the one before yields
// a schedule: the step's operations in the order in which they were ready. Operations are identified by their cache
// slots.
//
// A group of the schedule may be fused. Two operations are in one group only if every rank had asked for the later one
// before anything of the group was performed: otherwise a program that waits for one before it submits the other would
// block in a locked schedule, and break it each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/control/protocol/messages.h"

namespace hvd {

class ScheduleLearner {
 public:
  // The operation in `slot` executes in message `number`; a rank that asked for it last had applied `applied` messages.
  void executed(std::uint32_t slot, std::uint64_t number, std::uint64_t applied);

  // Nothing is pending: everything that the coordinator has been asked for has been executed. (It does not know what
  // nodes of the control tree hold back: steps are then cut elsewhere.)
  void paused();

  // Something happened that is not part of any step, or a slot's content has changed.
  void disturbed();

  // True from the last execute of a step that equals the one before until the next execute.
  bool has_schedule() const { return !ready_.empty(); }
  Schedule schedule() const;

  // The schedule was given up after so many performed steps. After one that did not pay off, the next takes longer to
  // come, until one pays off, or would have.
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
  std::size_t known_ = 0;         // how many of them are in the previous step
  std::size_t paused_after_ = 0;  // their number at the last pause
  bool pauses_ = false;           // the program usually does

  SlotSet previous_;
  std::size_t previous_size_ = 0;
  std::vector<Executed> ready_;  // the step that has just ended, if it equals the one before
  unsigned repetitions_ = 0;     // of the previous step, in a row
  unsigned needed_ = 1;
};

}  // namespace hvd

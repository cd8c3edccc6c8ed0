// Detects that steps repeat: observes executed operations, and derives the schedule to perform without negotiation.
//
// Pure; owned by the Coordinator. A *step* is a sequence of operations in which no operation occurs twice. It is over
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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/control/protocol/messages.h"

namespace hvd {

class ScheduleLearner {
 public:
  // The operation in `slot` executes in message `number`; a rank that asked for it last had applied `applied` messages.
  void executed(std::uint32_t slot, std::uint64_t number, std::uint64_t applied) {
    ready_.clear();
    while (contains(in_step_, slot)) cut();
    add({slot, number, applied});
    if (!pauses_ && complete()) end_step();
  }

  // Nothing is pending: everything that the coordinator has been asked for has been executed. (It does not know what
  // nodes of the control tree hold back: steps are then cut elsewhere.)
  void paused() {
    pauses_ = true;
    paused_after_ = step_.size();
    if (!step_.empty() && complete()) end_step();
  }

  // Something happened that is not part of any step, or a slot's content has changed.
  void disturbed() {
    step_.clear();
    in_step_.clear();
    previous_.clear();
    ready_.clear();
    known_ = previous_size_ = paused_after_ = 0;
    end_run();
  }

  // True from the last execute of a step that equals the one before until the next execute.
  bool has_schedule() const { return !ready_.empty(); }
  Schedule schedule() const {
    Schedule groups;
    std::uint64_t group_began = 0;  // the message
    for (const Executed& operation : ready_) {
      if (groups.empty() || operation.applied >= group_began) {
        groups.emplace_back();
        group_began = operation.number;
      }
      groups.back().push_back(operation.slot);
    }
    return groups;
  }

  // The schedule was given up after so many performed steps. After a schedule that lasted for fewer than kFewSteps,
  // twice as many repetitions are required (at most kMaxNeeded); a schedule that lasts longer, or kManySteps
  // repetitions without one, resets this.
  void given_up(std::uint64_t steps) {
    const unsigned more = std::min(needed_ * 2, kMaxNeeded);
    disturbed();
    needed_ = steps < kFewSteps ? more : 1;
  }

  // Whether the slot is in the schedule.
  bool has(std::uint32_t slot) const { return contains(previous_, slot); }

 private:
  struct Executed {
    std::uint32_t slot;
    std::uint64_t number;
    std::uint64_t applied;
  };
  using SlotSet = std::vector<bool>;

  static constexpr unsigned kMaxNeeded = 64;             // repetitions
  static constexpr std::uint64_t kFewSteps = 8;          // a schedule of fewer has cost about what it saved
  static constexpr unsigned kManySteps = 2 * kFewSteps;  // would have paid off, whatever became of earlier ones

  static bool contains(const SlotSet& set, std::uint32_t slot) { return slot < set.size() && set[slot]; }

  bool complete() const { return known_ == previous_size_ && known_ == step_.size(); }
  void add(const Executed& operation) {
    step_.push_back(operation);
    if (operation.slot >= in_step_.size()) in_step_.resize(operation.slot + std::size_t{1});
    in_step_[operation.slot] = true;
    known_ += contains(previous_, operation.slot) ? 1 : 0;
  }
  // The step ends at its last pause; what came after that begins the next one.
  void cut() {
    pauses_ = paused_after_ > 0;
    const auto end = step_.begin() + static_cast<std::ptrdiff_t>(pauses_ ? paused_after_ : step_.size());
    const std::vector<Executed> rest(end, step_.end());
    known_ -= static_cast<std::size_t>(
        std::count_if(rest.begin(), rest.end(), [this](const Executed& e) { return contains(previous_, e.slot); }));
    for (const Executed& operation : rest) in_step_[operation.slot] = false;
    step_.erase(end, step_.end());
    end_step();
    ready_.clear();
    for (const Executed& operation : rest) add(operation);
  }
  void end_step() {
    if (complete()) {
      ++repetitions_;
    } else {
      end_run();
    }
    previous_size_ = step_.size();
    previous_ = std::exchange(in_step_, {});
    known_ = paused_after_ = 0;
    if (repetitions_ >= needed_) ready_ = step_;
    step_.clear();
  }
  void end_run() {
    if (repetitions_ >= kManySteps) needed_ = 1;
    repetitions_ = 0;
  }

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

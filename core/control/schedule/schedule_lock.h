// One rank's side of the schedule lock: while steps repeat, this rank's submissions alone determine what is performed,
// without negotiation.
//
//   learn     ranks negotiate.
//   propose   the coordinator has sent a schedule to follow from here on. It does so between two operations, in the
//             stream that all ranks follow, so all begin at the same place. This rank has not yet seen that all do.
//   locked    stages are performed in the order of the schedule, repeatedly, each as soon as this rank has submitted
//             its operations. Every rank *asks* for a stage by the data that it publishes (EntryMode::asking).
//   breaking  this rank wants to negotiate again. It declines the next stage, and requests that the others do so too
//             (ControlChannel::request_break), unless they ask for the stage anyway.
//
// A stage is a bucket, or several that have tensors of one operation. It is performed if all ranks ask for it, and if
// one declines it no rank performs it; each rank receives the others' votes in the stage's first step, so all
// learn of it at the same stage. Then the lock is over, on every rank: they announce again whatever is pending, and
// inputs are unchanged. Nothing is done twice or lost.
//
// Backends whose collectives cannot be cancelled once they have begun (a launched kernel) do not take part: a process
// set is locked only if Backend::can_be_asked().
//
// Pure. Owned by the ScheduleRunner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

class ScheduleLock {
 public:
  enum class State : std::uint8_t { learn, propose, locked, breaking };

  // Why a lock is given up, on the rank that requests it.
  enum class Cause : std::uint8_t {
    none,
    new_operation,  // a submission is not in the schedule, or differs from it
    order,          // a caller waits for an operation while an earlier one has not been submitted
    late,           // other ranks have not asked for the stage for a long time
    leaving,        // this rank shuts down
    other_rank,     // one of the above, on another rank
  };

  struct Action {
    enum class Kind : std::uint8_t { wait, perform, decline };
    Kind kind = Kind::wait;
    std::size_t stage = 0;  // to perform
  };

  // LEARN -> PROPOSE. `stages`: the cache slots of each, every slot in one stage; `number` identifies this lock.
  void propose(std::uint64_t number, const std::vector<std::vector<std::uint32_t>>& stages) {
    const std::uint64_t earlier_steps = steps_of_all_locks();
    *this = ScheduleLock();
    earlier_steps_ = earlier_steps;
    state_ = State::propose;
    number_ = number;
    stages_.resize(stages.size());
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      stages_[stage].operations = stages[stage].size();
      for (const std::uint32_t slot : stages[stage]) {
        if (slot >= stage_of_.size()) stage_of_.resize(slot + std::size_t{1}, kNone);
        stage_of_[slot] = stage;
      }
    }
  }

  State state() const { return state_; }
  bool active() const { return state_ != State::learn; }
  std::uint64_t number() const { return number_; }
  Cause cause() const { return cause_; }

  // This rank has submitted the operation in `slot`. False if it is not in the schedule: request_end() is due.
  bool submitted(std::uint32_t slot) {
    if (slot >= stage_of_.size() || stage_of_[slot] == kNone) return false;
    ++stages_[stage_of_[slot]].submitted;
    return true;
  }

  // What to do now. `asked_to_break`: by another rank.
  Action next(bool asked_to_break) const {
    if (!active()) return {};
    if (state_ == State::breaking || asked_to_break) return {.kind = Action::Kind::decline};
    if (stages_[next_].submitted < stages_[next_].operations) return {};
    return {.kind = Action::Kind::perform, .stage = next_};
  }

  // The next stage, if it is a single operation, and next() waits only for this rank to submit it.
  std::optional<std::size_t> single(bool asked_to_break) const {
    const bool goes_on = (state_ == State::propose || state_ == State::locked) && !asked_to_break;
    if (!goes_on || stages_[next_].operations != 1 || stages_[next_].submitted != 0) return std::nullopt;
    return next_;
  }

  // The number of operations that next() waits for.
  std::size_t missing() const { return stages_[next_].operations - stages_[next_].submitted; }

  // All ranks have asked for the stage that next() returned, and it has been performed. -> LOCKED
  void performed() {
    if (state_ == State::propose) state_ = State::locked;
    stages_[next_].submitted = 0;
    if (++next_ < stages_.size()) return;
    next_ = 0;
    ++steps_;
  }
  // Complete steps so far: of this lock, and of all.
  std::uint64_t steps() const { return steps_; }
  std::uint64_t steps_of_all_locks() const { return earlier_steps_ + steps_; }

  // This rank wants the lock to end. -> BREAKING. The first cause counts.
  void request_end(Cause cause) {
    if (state_ == State::breaking) return;
    state_ = State::breaking;
    cause_ = cause;
  }
  // A stage was declined, by this rank or another one. -> LEARN
  void ended() { state_ = State::learn; }

 private:
  struct Stage {
    std::size_t operations = 0;
    std::size_t submitted = 0;  // of them, since the stage was last performed
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  State state_ = State::learn;
  Cause cause_ = Cause::none;
  std::uint64_t number_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t earlier_steps_ = 0;
  std::size_t next_ = 0;
  std::vector<Stage> stages_;
  std::vector<std::size_t> stage_of_;  // by slot; kNone: not in the schedule
};

}  // namespace hvd

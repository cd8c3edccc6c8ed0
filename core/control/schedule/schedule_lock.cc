#include "core/control/schedule/schedule_lock.h"

namespace hvd {

void ScheduleLock::propose(std::uint64_t epoch, const std::vector<std::vector<std::uint32_t>>& stages) {
  const std::uint64_t earlier_steps = steps_of_all_locks();
  *this = ScheduleLock();
  earlier_steps_ = earlier_steps;
  state_ = State::propose;
  epoch_ = epoch;
  stages_.resize(stages.size());
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    stages_[stage].operations = stages[stage].size();
    for (const std::uint32_t slot : stages[stage]) {
      if (slot >= stage_of_.size()) stage_of_.resize(slot + std::size_t{1}, kNone);
      stage_of_[slot] = stage;
    }
  }
}

bool ScheduleLock::submitted(std::uint32_t slot) {
  if (slot >= stage_of_.size() || stage_of_[slot] == kNone) return false;
  ++stages_[stage_of_[slot]].submitted;
  return true;
}

ScheduleLock::Step ScheduleLock::next(bool asked_to_break) const {
  if (!active()) return {};
  if (state_ == State::breaking || asked_to_break) return {.kind = Step::Kind::decline};
  if (stages_[next_].submitted < stages_[next_].operations) return {};
  return {.kind = Step::Kind::perform, .stage = next_};
}

void ScheduleLock::performed() {
  if (state_ == State::propose) state_ = State::locked;
  stages_[next_].submitted = 0;
  if (++next_ < stages_.size()) return;
  next_ = 0;
  ++steps_;
}

void ScheduleLock::break_up(Cause cause) {
  if (state_ == State::breaking) return;
  state_ = State::breaking;
  cause_ = cause;
}

void ScheduleLock::ended() { state_ = State::learn; }

}  // namespace hvd

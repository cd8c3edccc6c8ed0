#include "core/control/schedule/schedule_learner.h"

#include <algorithm>
#include <utility>

namespace hvd {

namespace {

constexpr unsigned kMostNeeded = 64;

// A schedule that lasted for fewer steps has cost about what it saved; after so many repetitions one would have paid
// off, whatever became of earlier ones.
constexpr std::uint64_t kFewSteps = 8;
constexpr unsigned kManySteps = 2 * kFewSteps;

bool contains(const std::vector<bool>& set, std::uint32_t slot) { return slot < set.size() && set[slot]; }

void insert(std::vector<bool>& set, std::uint32_t slot) {
  if (slot >= set.size()) set.resize(slot + std::size_t{1});
  set[slot] = true;
}

}  // namespace

void ScheduleLearner::executed(std::uint32_t slot, std::uint64_t number, std::uint64_t applied) {
  ready_.clear();
  while (contains(in_step_, slot)) cut();
  add({slot, number, applied});
  if (!pauses_ && complete()) end_step();
}

void ScheduleLearner::paused() {
  pauses_ = true;
  paused_after_ = step_.size();
  if (!step_.empty() && complete()) end_step();
}

void ScheduleLearner::add(const Executed& operation) {
  step_.push_back(operation);
  insert(in_step_, operation.slot);
  known_ += contains(previous_, operation.slot) ? 1 : 0;
}

// The step ends at its last pause; what came after that begins the next one.
void ScheduleLearner::cut() {
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

void ScheduleLearner::end_step() {
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

void ScheduleLearner::end_run() {
  if (repetitions_ >= kManySteps) needed_ = 1;
  repetitions_ = 0;
}

void ScheduleLearner::disturbed() {
  step_.clear();
  in_step_.clear();
  previous_.clear();
  ready_.clear();
  known_ = previous_size_ = paused_after_ = 0;
  end_run();
}

Schedule ScheduleLearner::schedule() const {
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

void ScheduleLearner::given_up(std::uint64_t steps) {
  const unsigned more = std::min(needed_ * 2, kMostNeeded);
  disturbed();
  needed_ = steps < kFewSteps ? more : 1;
}

}  // namespace hvd

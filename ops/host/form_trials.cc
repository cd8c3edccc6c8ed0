#include "ops/host/form_trials.h"

#include <algorithm>
#include <bit>

namespace hvd {

std::size_t FormTrials::index_of(std::int64_t bytes) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes)));
}

FormTrials::Choice FormTrials::choose(std::int64_t bytes) {
  Size& size = sizes_[index_of(bytes)];
  if (size.calls >= 2 * kTrials) return {.form = size.chosen, .is_trial = false};
  const int call = size.calls++;
  return {.form = call % 2 == 0 ? Form::chunks : Form::reading, .is_trial = true, .is_last = size.calls == 2 * kTrials};
}

void FormTrials::take_back(std::int64_t bytes) { --sizes_[index_of(bytes)].calls; }

void FormTrials::took(std::int64_t bytes, Form form, double seconds) {
  Size& size = sizes_[index_of(bytes)];
  if (size.calls <= 2) return;
  double& best = size.best[static_cast<std::size_t>(form)];
  best = std::min(best, seconds);
}

FormTrials::Costs FormTrials::costs(std::int64_t bytes) const { return sizes_[index_of(bytes)].best; }

void FormTrials::agree(std::int64_t bytes, const Costs& of_all_ranks) {
  sizes_[index_of(bytes)].chosen = of_all_ranks[1] < of_all_ranks[0] ? Form::reading : Form::chunks;
}

}  // namespace hvd

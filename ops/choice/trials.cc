#include "ops/choice/trials.h"

#include <algorithm>
#include <bit>

#include "ops/choice/table_text.h"

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

std::string FormTrials::agree(const char* collective, std::int64_t bytes, const Costs& of_all_ranks) {
  const std::size_t octave = index_of(bytes);
  const bool reading = of_all_ranks[1] < of_all_ranks[0];
  sizes_[octave].chosen = reading ? Form::reading : Form::chunks;
  return std::string(collective) + " of " + range_text(std::size_t{1} << (octave - 1), std::size_t{1} << octave) +
         " bytes in shared memory: " + (reading ? "reading" : "chunks") + ", since the ranks' times add up to " +
         time_text(of_all_ranks[1]) + " by reading each other's memory, " + time_text(of_all_ranks[0]) + " in chunks";
}

CopyTrials::Way CopyTrials::better() const {
  // Requires a factor of two: streamed data is more expensive to read.
  return cost_[1] > 0 && 2 * cost_[1] < cost_[0] ? Way::streaming : Way::plain;
}

CopyTrials::Way CopyTrials::choose() {
  const Way way = better();
  if (++chunks_ % kTrial != 0) return way;
  return way == Way::plain ? Way::streaming : Way::plain;
}

void CopyTrials::took(Way way, double seconds_per_byte) {
  double& cost = cost_[static_cast<std::size_t>(way)];
  // An interrupted copy is not representative: a cost counts as twice the usual at most.
  cost = cost > 0 ? (cost + std::min(seconds_per_byte, 2 * cost)) / 2 : seconds_per_byte;
}

}  // namespace hvd

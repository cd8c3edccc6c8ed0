// Phases in process sets of their own.
#include <algorithm>

#include "tests/trace/steps.h"

namespace hvd::trace {

namespace {

std::string text_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "[" : ",") + std::to_string(rank);
  return text + "]";
}

Set add(Phase& phase, std::vector<int> ranks, hvd_status expected = HVD_OK) {
  std::sort(ranks.begin(), ranks.end());
  Set set{.id = 0, .ranks = ranks, .position = -1};
  const Outcome outcome = Outcome::of(hvd_add_process_set(ranks.data(), ranks.size(), &set.id));
  const std::string number = outcome.status == HVD_OK ? " as " + std::to_string(set.id) : "";
  phase.trace.add("-", "add set " + text_of(ranks) + number, outcome, expected);
  const auto own = std::ranges::find(ranks, phase.rank);
  if (own != ranks.end()) set.position = static_cast<int>(own - ranks.begin());
  return set;
}

void remove(Phase& phase, std::int32_t id, hvd_status expected = HVD_OK) {
  phase.trace.add("-", "remove set " + std::to_string(id), Outcome::of(hvd_remove_process_set(id)), expected);
}

// Whoever is not in the set is refused; so is everybody when it is gone.
void call_from_outside(Phase& phase, const Set& set, std::uint64_t key) {
  Operation operation{.name = phase.prefix + ".outside", .process_set = set.id, .tensors = {{HVD_FLOAT32, {5}}}};
  operation.key = key;
  operation.expected = HVD_INVALID_ARGUMENT;
  perform(phase, operation);
}

void make_mistakes(Phase& phase) {
  const int deviating = phase.random.below(phase.set.size());
  add(phase, {phase.rank == deviating ? 1 : 0}, HVD_MISMATCH);
  add(phase, {0, phase.set.size()}, HVD_INVALID_ARGUMENT);
  remove(phase, kNoSuchSet, HVD_INVALID_ARGUMENT);
  remove(phase, HVD_GLOBAL_PROCESS_SET, HVD_INVALID_ARGUMENT);
}

}  // namespace

void use_sets(Phase& phase, void (*body)(Phase&)) {
  Random& random = phase.random;
  const int size = phase.set.size();
  if (size < 2) return body(phase);
  if (random.one_in(2)) make_mistakes(phase);
  // Two sets, which may have a rank in common.
  const std::vector<int> order = random.permutation(size);
  const int cut = random.between(1, size - 1);
  const bool in_common = cut > 1 && random.one_in(2);
  std::vector<Set> sets{add(phase, {order.begin(), order.begin() + cut}),
                        add(phase, {order.begin() + cut - (in_common ? 1 : 0), order.end()})};
  if (random.one_in(2)) add(phase, sets[0].ranks, HVD_INVALID_ARGUMENT);
  const std::uint64_t seed = random.next();
  for (const Set& set : sets) {
    if (set.position < 0) {
      call_from_outside(phase, set, seed);
      continue;
    }
    Phase inner{phase.trace,  set,          phase.rank,    Random(seed + static_cast<std::uint64_t>(set.id)),
                phase.prefix, phase.length, phase.overlaps};
    body(inner);
  }
  if (random.one_in(2)) std::swap(sets[0], sets[1]);
  for (const Set& set : sets) remove(phase, set.id);
  call_from_outside(phase, sets[0], seed);
}

}  // namespace hvd::trace

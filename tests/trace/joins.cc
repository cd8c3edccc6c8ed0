// Phases in which ranks join before the others have finished.
#include <algorithm>

#include "tests/trace/steps.h"

namespace hvd::trace {

namespace {

// What happens in this step to ranks that have joined, by their positions.
struct Absence {
  std::vector<int> positions{};

  bool has(int position) const { return std::ranges::find(positions, position) != positions.end(); }
  // Where several ranks are absent, which of them an error names depends on which has joined first.
  bool names_one() const { return positions.size() == 1; }
};

// Rows for those that are absent fail the operation. Only the first of those present has some: the error names it.
void draw_rows_for_absent(Phase& phase, const Absence& absence, Operation& alltoall) {
  const int size = phase.set.size();
  auto splits = draw_splits(phase.random, phase.set);
  const bool fails = absence.names_one() && phase.random.one_in(3);
  int first = 0;
  while (absence.has(first)) ++first;
  for (int from = 0; from < size; ++from) {
    for (const int to : absence.positions) {
      splits[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = fails && from == first ? 2 : 0;
    }
  }
  give_splits(alltoall, splits[static_cast<std::size_t>(phase.set.position)]);
  if (fails) alltoall.expected = HVD_MISMATCH;
}

bool keeps_neutral(const Operation& operation) {
  return operation.reduce_op == HVD_SUM || operation.reduce_op == HVD_AVERAGE || operation.reduce_op == HVD_ADASUM;
}

// An operation among the ranks that are left.
Operation draw_among_present(Phase& phase, const Absence& absence, const std::string& name) {
  Operation operation = draw_operation(phase.random, phase.set, name);
  if (absence.positions.empty()) return operation;
  if (operation.collective == HVD_ALLTOALL) draw_rows_for_absent(phase, absence, operation);
  if (operation.collective == HVD_BROADCAST) {
    const auto root = std::ranges::find(phase.set.ranks, operation.root) - phase.set.ranks.begin();
    if (absence.has(static_cast<int>(root))) operation.expected = HVD_MISMATCH;
  }
  if (operation.reduces() && !keeps_neutral(operation) && operation.prescale != 1) {
    if (absence.names_one()) operation.expected = HVD_MISMATCH;
    if (!absence.names_one()) operation.prescale = 1;
  }
  return operation;
}

}  // namespace

void join_early(Phase& phase) {
  Random& random = phase.random;
  const int size = phase.set.size();
  const std::vector<int> order = random.permutation(size);  // no two ranks join at the same time
  const int least = std::max(1, phase.length / 4);
  const auto steps_of = [&](int position) { return least + 2 * order[static_cast<std::size_t>(position)]; };
  for (int step = 0; step < steps_of(phase.set.position); ++step) {
    Absence absence;
    for (int position = 0; position < size; ++position) {
      if (steps_of(position) <= step) absence.positions.push_back(position);
    }
    for (int i = 0; i < 2; ++i) {
      perform(phase, draw_among_present(phase, absence, phase.prefix + ".j" + std::to_string(i)));
    }
  }
  perform(phase, {.name = "join", .collective = HVD_JOIN, .process_set = phase.set.id});
}

}  // namespace hvd::trace

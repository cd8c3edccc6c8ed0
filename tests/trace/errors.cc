// Phases in which calls fail, and all ranks go on.
#include "tests/trace/steps.h"

namespace hvd::trace {

namespace {

constexpr int kNoSuchRank = 1000;

Operation alltoall_with(Random& random, const Set& set, int more_rows, int more_splits) {
  Operation operation{.collective = HVD_ALLTOALL, .tensors = {{HVD_INT32, {0, 3}}}};
  const auto splits = draw_splits(random, set);
  give_splits(operation, splits[static_cast<std::size_t>(set.position)]);
  operation.splits.front() += more_rows;
  operation.splits.resize(operation.splits.size() + static_cast<std::size_t>(more_splits));
  return operation;
}

// A call that is wrong whatever the other ranks do.
Operation draw_refused(Random& random, const Set& set) {
  const TensorSpec tensor{HVD_FLOAT32, {4, 2}};
  switch (random.below(12)) {
    case 0: return {.collective = HVD_BROADCAST, .tensors = {tensor}, .root = kNoSuchRank};
    case 1: return {.collective = HVD_BROADCAST, .tensors = {tensor}, .root = -1};
    case 2: return {.process_set = kNoSuchSet, .tensors = {tensor}};
    case 3: return {.tensors = {{HVD_BOOL, {3}}}};
    case 4: return {.tensors = {{HVD_INT32, {3}}}, .reduce_op = HVD_ADASUM};
    case 5: return {.collective = HVD_REDUCESCATTER, .tensors = {tensor}, .reduce_op = HVD_ADASUM};
    case 6: return {.tensors = {{HVD_UINT32, {3}}}};
    case 7: return {.collective = HVD_BARRIER, .tensors = {tensor}};
    case 8: return {.collective = HVD_ALLGATHER, .tensors = {{HVD_INT16, {}}}};
    case 9: return {.tensors = {{-1, {3}}}};
    case 10: return alltoall_with(random, set, 1, 0);
    default: return alltoall_with(random, set, 0, 1);
  }
}

void be_refused(Phase& phase, const std::string& name) {
  Operation operation = draw_refused(phase.random, phase.set);
  operation.name = name;
  operation.expected = HVD_INVALID_ARGUMENT;
  if (operation.process_set != kNoSuchSet) operation.process_set = phase.set.id;
  perform(phase, operation, phase.random.one_in(2));
}

// What one rank asks for instead.
Operation deviate(Random& random, const Set& set, Operation operation) {
  if (operation.collective == HVD_BARRIER) {
    operation.collective = HVD_ALLREDUCE;
    operation.tensors = {{HVD_FLOAT32, {3}}};
    return operation;
  }
  TensorSpec& last = operation.tensors.back();
  switch (random.below(6)) {
    case 0: last.shape.push_back(2); return operation;
    case 1:
      operation.collective = HVD_BARRIER;
      operation.tensors.clear();
      operation.splits.clear();
      return operation;
    case 2:
      if (operation.collective == HVD_ALLTOALL) break;
      operation.tensors.push_back({HVD_FLOAT32, {1}});
      return operation;
    case 3:
      if (operation.collective == HVD_BROADCAST) {
        operation.root = set.ranks[operation.root == set.ranks[0] ? 1 : 0];
        return operation;
      }
      if (!operation.reduces()) break;
      operation.reduce_op = operation.reduce_op == HVD_MIN ? HVD_MAX : HVD_MIN;
      return operation;
    case 4:
      if (!operation.reduces()) break;
      (random.one_in(2) ? operation.prescale : operation.postscale) *= 2;
      return operation;
    default: break;
  }
  last.dtype = last.dtype == HVD_FLOAT32 ? HVD_FLOAT64 : HVD_FLOAT32;
  return operation;
}

// Leaves only the deviating rank in the error's text: which other rank it names, and which of the two first, depends on
// the order in which their requests arrive.
void leave_out_others(Outcome& outcome, int deviating) {
  const std::string start = "the ranks disagree: ", named = "rank " + std::to_string(deviating);
  const std::size_t end = outcome.text.find(start);
  if (end == std::string::npos || outcome.text.find(named + " ", end) == std::string::npos) return;
  outcome.text = outcome.text.substr(0, end) + start + named;
}

// One rank asks for something else under the same name; then all ask for the same.
void disagree(Phase& phase, const std::string& name) {
  Random& random = phase.random;
  Operation operation = draw_operation(random, phase.set, name);
  const int deviating = random.below(phase.set.size());
  const Operation other = deviate(random, phase.set, operation);
  const std::vector<int> order = random.permutation(phase.set.size());
  Operation own = phase.set.position == deviating ? other : operation;
  own.expected = HVD_MISMATCH;
  Execution execution(own, phase.rank);
  take_turns(phase, order, [&] { execution.submit(); });
  Outcome outcome = execution.finish();
  leave_out_others(outcome, phase.set.ranks[static_cast<std::size_t>(deviating)]);
  phase.trace.add(own, outcome);
  operation.key = random.next();
  perform(phase, operation);
}

// All ranks but one submit a name, and use it again too early.
void use_name_twice(Phase& phase, const std::string& name) {
  Random& random = phase.random;
  const Operation operation = draw_operation(random, phase.set, name);
  const bool is_late = random.below(phase.set.size()) == phase.set.position;
  const bool in_one_call = random.one_in(2);
  Execution first(operation, phase.rank);
  if (!is_late) {
    first.submit();
    phase.trace.add(name, "poll", first.poll(), HVD_TIMEOUT);
    Operation again = operation;
    again.expected = HVD_INVALID_ARGUMENT;
    perform(phase, again, in_one_call);
  }
  perform(phase, {.name = "turn", .collective = HVD_BARRIER, .process_set = phase.set.id});
  if (is_late) first.submit();
  phase.trace.add(operation, first.finish());
}

}  // namespace

void make_errors(Phase& phase) {
  const int errors = std::max(1, phase.length / 4);
  for (int i = 0; i < errors; ++i) {
    const std::string name = phase.prefix + ".e" + std::to_string(phase.random.below(4));
    const int kind = phase.set.size() == 1 ? 0 : phase.random.below(3);
    if (kind == 0) be_refused(phase, name);
    if (kind == 1) disagree(phase, name);
    if (kind == 2) use_name_twice(phase, name);
  }
}

}  // namespace hvd::trace

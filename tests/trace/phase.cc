#include "tests/trace/phase.h"

#include <algorithm>
#include <utility>

#include "tests/trace/steps.h"

namespace hvd::trace {

namespace {

std::string numbered(const Phase& phase, const char* what, int number) {
  return phase.prefix + "." + what + std::to_string(number);
}

// An operation more, another one under a name that is known, another shape, one less, or two in the other order.
void change(Phase& phase, std::vector<Operation>& step, int number) {
  Random& random = phase.random;
  const auto at = step.begin() + random.below(static_cast<int>(step.size()));
  switch (random.below(5)) {
    case 0: step.insert(at, draw_operation(random, phase.set, numbered(phase, "new", number))); break;
    case 1: *at = draw_operation(random, phase.set, at->name); break;
    case 2:
      if (!at->tensors.empty() && at->collective != HVD_ALLTOALL) at->tensors.front().shape.push_back(2);
      break;
    case 3:
      if (step.size() > 1) step.erase(at);
      break;
    default: std::iter_swap(step.begin(), at);
  }
}

}  // namespace

void repeat_steps(Phase& phase) {
  Random& random = phase.random;
  const bool in_one_call = random.one_in(2);
  const bool unnamed = !phase.overlaps && random.one_in(6);
  const int size = phase.overlaps ? random.between(2, 12) : random.between(1, 4);
  std::vector<Operation> step;
  for (int i = 0; i < size; ++i) step.push_back(draw_operation(random, phase.set, numbered(phase, "t", i)));
  int next_change = random.between(3, 12);
  for (int i = 0; i * size < phase.length; ++i) {
    std::vector<Operation> now = step;
    if (i == next_change) {
      change(phase, now, i);
      if (random.one_in(2)) step = now;
      next_change += random.between(1, 16);
    }
    for (Operation& operation : now) {
      operation.key = random.next();
      if (unnamed) operation.name.clear();
    }
    perform_step(phase, now, in_one_call);
  }
}

void mix_operations(Phase& phase) {
  const bool in_one_call = phase.random.one_in(2);
  for (int i = 0; i < phase.length; ++i) {
    const std::string name = phase.random.one_in(6) ? "" : numbered(phase, "m", i);
    perform(phase, draw_operation(phase.random, phase.set, name), in_one_call);
  }
}

}  // namespace hvd::trace

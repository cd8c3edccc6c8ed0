#include "tests/trace/steps.h"

#include <algorithm>
#include <deque>

namespace hvd::trace {

void perform(Phase& phase, Operation operation, bool in_one_call) {
  Execution execution(std::move(operation), phase.rank);
  in_one_call ? execution.run() : execution.submit();
  phase.trace.add(execution.operation(), execution.finish());
}

void perform_step(Phase& phase, const std::vector<Operation>& step, bool in_one_call) {
  if (!phase.overlaps) {
    for (const Operation& operation : step) perform(phase, operation, in_one_call);
    return;
  }
  Random own(phase.random.next() + static_cast<std::uint64_t>(phase.rank));
  const int size = static_cast<int>(step.size());
  std::deque<Execution> executions;
  for (const Operation& operation : step) executions.emplace_back(operation, phase.rank);
  for (const int i : own.permutation(size)) executions[static_cast<std::size_t>(i)].submit();
  std::vector<Outcome> outcomes(step.size());
  for (const int i : own.permutation(size)) {
    outcomes[static_cast<std::size_t>(i)] = executions[static_cast<std::size_t>(i)].finish();
  }
  for (std::size_t i = 0; i < step.size(); ++i) phase.trace.add(step[i], outcomes[i]);
}

void take_turns(Phase& phase, const std::vector<int>& order, const std::function<void()>& act) {
  for (const int position : order) {
    if (position == phase.set.position) act();
    perform(phase, {.name = "turn", .collective = HVD_BARRIER, .process_set = phase.set.id});
  }
}

}  // namespace hvd::trace

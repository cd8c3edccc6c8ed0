// How a phase performs operations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/trace/phase.h"

namespace hvd::trace {

constexpr std::int32_t kNoSuchSet = 77;

// Waits for the operation, and traces it.
void perform(Phase& phase, Operation operation, bool in_one_call = true);

// One after another, or all under way together and submitted and awaited in another order on each rank.
void perform_step(Phase& phase, const std::vector<Operation>& step, bool in_one_call);

// The ranks of the set act one after another, each when the ones before it have been heard by the coordinator.
void take_turns(Phase& phase, const std::vector<int>& order, const std::function<void()>& act);

}  // namespace hvd::trace

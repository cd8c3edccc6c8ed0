// Fixed link costs for tests, so that the choice of algorithm does not depend on the machine.
#pragma once

#include "ops/choice/cost_model.h"

namespace hvd::testing {

// 10 Gb/s, and an ordinary kernel's latency.
inline constexpr LinkCosts kTenGigabit{
    .latency = 20e-6, .per_byte = 0.8e-9, .per_message = 2e-6, .reduce_per_byte = 0.1e-9};

}  // namespace hvd::testing

// The requests of the ranks of a simulated job in each step: the gradients of a transformer, by name and shape.
#pragma once

#include <vector>

#include "core/operation/operation_spec.h"

namespace hvd::simulation {

std::vector<OperationSpec> gradients(int count);

}  // namespace hvd::simulation

// The requests of the ranks of a simulated job in each step: the gradients of a transformer, by name and shape.
#pragma once

#include <vector>

#include "core/operation/request.h"

namespace hvd::simulation {

std::vector<Request> gradients(int count);

}  // namespace hvd::simulation

// The ranks' input values, chosen such that the bits of a sum of floats show the order of the additions.
#pragma once

#include <cstdint>

#include "tests/trace/operation.h"

namespace hvd::trace {

// Fills a tensor of the operation, by the operation's key, the rank and the tensor's number in the group.
void fill(void* memory, const Operation& operation, std::size_t tensor, int rank);

}  // namespace hvd::trace

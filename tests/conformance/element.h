// Elements of any dtype as doubles, for plain-loop references. Values in the tests are small integers, which every
// dtype holds exactly.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"

namespace hvd::testing {

// The value as the dtype holds it after arithmetic that wraps (integers) or rounds (floats).
void put_element(DType dtype, std::byte* data, std::int64_t index, double value);
double get_element(DType dtype, const std::byte* data, std::int64_t index);

// fold(op) of the values, then scaled, in the dtype's own arithmetic.
double reduce_elements(DType dtype, ReduceOp op, const std::vector<double>& values, double prescale, double postscale);

}  // namespace hvd::testing

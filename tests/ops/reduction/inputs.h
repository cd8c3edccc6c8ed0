// Elements to reduce: values at the edges of each type, in every combination, and random bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "tests/ops/reduction/wide_reference.h"

namespace hvd {

inline constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product};

std::vector<DType> all_dtypes();

// Zeros, ones, the least and the greatest, neighbours of powers of two; for floats also denormals, infinities and NaN
// of all kinds, both signs of each. As bits.
std::vector<std::uint64_t> special_values(DType dtype);

// Several inputs of one length. Input k starts k elements after an aligned address.
class Inputs {
 public:
  Inputs(DType dtype, std::size_t count, std::size_t elements);

  void set(std::size_t input, std::size_t element, std::uint64_t bits);
  std::byte* data(std::size_t input) { return memory_[input].data() + input * size_of(dtype_); }
  std::vector<const void*> pointers() const;
  std::size_t elements() const { return elements_; }

 private:
  DType dtype_;
  std::size_t elements_;
  std::vector<Buffer> memory_;
};

// Numbers of ordinary size, integers of any.
Inputs ordinary_inputs(DType dtype, std::size_t count, std::size_t elements, std::uint64_t seed);
// A third special values, a third random bits, a third ordinary ones.
Inputs mixed_inputs(DType dtype, std::size_t count, std::size_t elements, std::uint64_t seed);
// Every combination of `count` special values, one an element.
Inputs all_combinations(DType dtype, std::size_t count);

// What was reduced, for a failure's text.
std::string describe(const Reduction& reduction, std::size_t count, std::size_t elements);

// reduce() with each instruction set that there is, compared bit by bit with the reference; also that it writes its own
// elements only. For each of the lengths.
void check_all_sets(Reduction reduction, DType in_type, const Inputs& inputs, DType out_type,
                    const std::vector<std::size_t>& lengths);
// For the whole length.
void check_all_sets(const Reduction& reduction, const Inputs& inputs);

}  // namespace hvd

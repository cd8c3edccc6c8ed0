// N-ary element-wise reduction: with adaptive_sum.h, the only arithmetic on users' data.
//
// out[i] = round(postscale * fold(op, prescale * in[0][i], prescale * in[1][i], ...)), folded in the order of the
// inputs, in the accumulator type (accumulator_of: float32 for the 16-bit floats), and rounded to the tensors' type
// once at the end. The order of inputs is rank order, so that a result is bitwise the same whichever rank computes it
// and however a tensor is cut.
//
// The same bits on every processor and instruction set:
//   - no fused multiply-add, no reassociation; every step rounds to nearest, ties to even; denormals are preserved;
//   - integers wrap around; a 16-bit float too large for its type becomes infinity;
//   - min and max return the last of equal zeros, and a NaN rather than any number;
//   - there is one NaN: whatever the inputs, a resulting NaN has the sign and the bits 0x7fc00000 in float32
//     (0x7ff8000000000000 in float64, 0x7e00 in float16, 0x7fc0 in bfloat16). Processors differ in the others.
//     Only values that are copied, not computed (one unscaled input, no conversion), keep their bits.
// The calling thread's floating-point environment must be the default one.
//
// Each call is a single pass: conversion, factors, operation and rounding of an element happen in a register, for any
// number of inputs (kernel_loops.h).
#pragma once

#include <cstddef>
#include <span>

#include "core/tensor/collective.h"
#include "core/tensor/dtype.h"
#include "ops/reduction/instruction_set.h"

namespace hvd {

struct Reduction {
  DType dtype = DType::float32;  // the tensors' type
  ReduceOp op = ReduceOp::sum;   // sum, min, max, product
  double prescale = 1.0;         // factors are applied in double (in float32 to 16-bit floats, not at all to booleans),
                                 // as if in float32 if float32 represents them;
  double postscale = 1.0;        // integers are then truncated toward zero and saturate; by 1/n they are divided by n
  InstructionSet instruction_set = InstructionSet::automatic;  // does not affect the result
};

// False for average and adasum; true for booleans with min and max only; false for types that are only moved.
bool reduction_exists(DType dtype, ReduceOp op);
// Throws Unsupported if the reduction does not exist.
void check_reduction(DType dtype, ReduceOp op);

// Performs a step of any algorithm. Inputs are all of `in_type`, the result of `out_type`; each is reduction.dtype or
// its accumulator type. `out` may be one of the inputs, otherwise it must overlap none. With one input it scales and
// converts. Pointers need no alignment beyond the element's.
void reduce(const Reduction& reduction, DType in_type, std::span<const void* const> inputs, DType out_type, void* out,
            std::size_t elements);

// Fills with the operation's identity (0, 1, lowest or highest value; boolean: false for max, true for min), which a
// joined rank contributes. The identity is not adjusted for a later prescale.
void fill_identity(DType dtype, ReduceOp op, void* out, std::size_t elements);

}  // namespace hvd

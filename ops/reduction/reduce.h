// N-ary element-wise reduction, and the sum of Adasum: the only arithmetic on users' data.
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
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"

namespace hvd {

// The instruction sets that reductions are compiled for, and those that this processor supports.
//
//   scalar   one number at a time, on any processor
//   avx2     x86-64 with AVX2 and F16C
//   avx512   x86-64 with AVX-512 F, BW, DQ and VL
//   neon     AArch64
//
// They differ only in speed: a reduction has the same bits with all of them, on all processors.
enum class InstructionSet : std::uint8_t { automatic, scalar, avx2, avx512, neon };

const char* instruction_set_name(InstructionSet set);  // of `automatic`: "auto"

// Returns the sets that this processor, and its operating system, support; the best last.
std::span<const InstructionSet> available_instruction_sets();

// Throws InvalidArgument that lists the available sets, unless the name is one of those or "auto".
InstructionSet instruction_set_from(const std::string& name);

struct Reduction {
  DType dtype = DType::float32;  // the tensors' type
  ReduceOp op = ReduceOp::sum;   // sum, min, max, product
  // The factor of the inputs. Factors are applied in double (in float32 to 16-bit floats, not at all to booleans), as
  // if in float32 if float32 represents them. Scaled integers are truncated toward zero and saturate; 1/n divides by n.
  double prescale = 1.0;
  // The factor of the result, applied in the same way.
  double postscale = 1.0;
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

// The arithmetic of Adasum on two vectors:
//
//   adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// Orthogonal vectors are added and equal ones averaged: a common component counts once. A quotient with a norm of zero
// counts as 0, so that a zero vector changes nothing. A NaN or an infinity affects the whole sum. Source: S. Maleki et
// al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.
//
// Vectors may be cut into parts if the caller adds up the parts' dot products in an order that it chooses: the bits
// depend on that order and on the cuts only. Same bits on every instruction set. Elements are accumulators, float32
// or float64.

// Of two vectors or of parts of them; sums are computed in double.
struct DotProducts {
  double ab = 0;
  double aa = 0;
  double bb = 0;

  DotProducts& operator+=(const DotProducts& other);
};

DotProducts dot_products(DType accumulator, const void* a, const void* b, std::size_t elements);

// Computes a = adasum(a, b) on a part, where `products` are those of the whole vectors.
void add_adaptively(DType accumulator, const DotProducts& products, void* a, const void* b, std::size_t elements);

}  // namespace hvd

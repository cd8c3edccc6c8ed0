#include "ops/reduction/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "ops/reduction/kernels.h"

namespace hvd {

namespace {

// The factor as the kernels apply it.
double factor_for(DType dtype, double factor) {
  if (dtype == DType::boolean) return 1.0;
  return accumulator_of(dtype) == dtype ? factor : static_cast<double>(static_cast<float>(factor));
}

template <typename T>
void fill(void* out, T value, std::size_t elements) {
  std::fill_n(static_cast<T*>(out), elements, value);
}

// The limits of the order are infinities for floats, the limits of the type for integers.
template <typename T>
void fill_number(ReduceOp op, void* out, std::size_t elements) {
  using Limits = std::numeric_limits<T>;
  constexpr T kLowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  constexpr T kHighest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  fill(out,
       op == ReduceOp::sum       ? T{0}
       : op == ReduceOp::product ? T{1}
       : op == ReduceOp::min     ? kHighest
                                 : kLowest,
       elements);
}

void fill_16_bit_float(ReduceOp op, std::uint16_t one, std::uint16_t infinity, void* out, std::size_t elements) {
  const std::uint16_t negative_infinity = infinity | 0x8000u;
  const std::uint16_t value = op == ReduceOp::sum       ? std::uint16_t{0}
                              : op == ReduceOp::product ? one
                              : op == ReduceOp::min     ? infinity
                                                        : negative_infinity;
  fill(out, value, elements);
}

}  // namespace

bool reduction_exists(DType dtype, ReduceOp op) {
  if (only_moves(dtype)) return false;
  if (op == ReduceOp::min || op == ReduceOp::max) return true;
  return (op == ReduceOp::sum || op == ReduceOp::product) && dtype != DType::boolean;
}

void check_reduction(DType dtype, ReduceOp op) {
  if (!reduction_exists(dtype, op)) {
    throw Unsupported(std::string("no reduction with ") + reduce_op_name(op) + " on tensors of " + dtype_name(dtype));
  }
}

void reduce(const Reduction& reduction, DType in_type, std::span<const void* const> inputs, DType out_type, void* out,
            std::size_t elements) {
  check_reduction(reduction.dtype, reduction.op);
  if (elements == 0) return;
  const double prescale = factor_for(reduction.dtype, reduction.prescale);
  const double postscale = factor_for(reduction.dtype, reduction.postscale);
  if (inputs.size() == 1 && in_type == out_type && prescale == 1.0 && postscale == 1.0) {
    if (inputs[0] != out) std::memcpy(out, inputs[0], elements * size_of(in_type));
    return;
  }
  const Kernels& kernels = kernels_for(reduction.instruction_set);
  kernels.fold(in_type, out_type, reduction.op)({.destination = out,
                                                 .sources = inputs.data(),
                                                 .count = inputs.size(),
                                                 .elements = elements,
                                                 .prescale = prescale,
                                                 .postscale = postscale});
}

void fill_identity(DType dtype, ReduceOp op, void* out, std::size_t elements) {
  check_reduction(dtype, op);
  switch (dtype) {
    case DType::uint8: return fill_number<std::uint8_t>(op, out, elements);
    case DType::int8: return fill_number<std::int8_t>(op, out, elements);
    case DType::int16: return fill_number<std::int16_t>(op, out, elements);
    case DType::int32: return fill_number<std::int32_t>(op, out, elements);
    case DType::int64: return fill_number<std::int64_t>(op, out, elements);
    case DType::float16: return fill_16_bit_float(op, 0x3c00, 0x7c00, out, elements);
    case DType::bfloat16: return fill_16_bit_float(op, 0x3f80, 0x7f80, out, elements);
    case DType::float32: return fill_number<float>(op, out, elements);
    case DType::float64: return fill_number<double>(op, out, elements);
    case DType::boolean: return fill(out, static_cast<std::uint8_t>(op == ReduceOp::min), elements);
    case DType::uint16:
    case DType::uint32:
    case DType::uint64: return;  // refused above
  }
}

}  // namespace hvd

#include "ops/gpu/reduction_plan.h"

#include <cmath>
#include <string>

#include "core/base/error.h"

namespace hvd::nccl {

namespace {

[[noreturn]] void refuse(const CollectiveCall& call, const std::string& why) {
  throw Unsupported(std::string("NCCL cannot do ") + collective_name(call.collective) + " (" + reduce_op_name(call.op) +
                    ") of " + dtype_name(call.dtype) + " tensors on a GPU: " + why +
                    "; or set HVD_GPU_THROUGH_HOST=1, and it goes through the host's memory, which is slow");
}

Type type_for(const CollectiveCall& call, bool kernels) {
  switch (call.dtype) {
    case DType::int8: return Type::int8;
    case DType::uint8:
    case DType::boolean: return Type::uint8;
    case DType::int32: return Type::int32;
    case DType::int64: return Type::int64;
    case DType::float16: return Type::float16;
    case DType::bfloat16: return Type::bfloat16;
    case DType::float32: return Type::float32;
    case DType::float64: return Type::float64;
    case DType::int16:
      if (kernels) return Type::int32;
      break;
    case DType::uint16:
    case DType::uint32:
    case DType::uint64: refuse(call, "hvd does not reduce unsigned integers of more than 8 bits");
  }
  refuse(call, "it has no such type; use int32");
}

Op op_for(const CollectiveCall& call) {
  switch (call.op) {
    case ReduceOp::sum: return Op::sum;
    case ReduceOp::min: return Op::min;
    case ReduceOp::max: return Op::max;
    case ReduceOp::product: return Op::product;
    case ReduceOp::average:  // converted to a sum by build_call()
    case ReduceOp::adasum: break;
  }
  refuse(call, "it has no such operation");
}

bool is_whole(double value) { return std::trunc(value) == value && std::fabs(value) <= 0x1p53; }

// Up to the rounding of both factors in the type in which they are applied.
bool is_reciprocal_of(double factor, double number, DType dtype) {
  const double rounding = accumulator_of(dtype) == DType::float32 ? 0x1p-22 : 1e-14;
  return std::fabs(factor * number - 1.0) < rounding;
}

bool is_reciprocal(double factor, DType dtype) {
  const double number = std::round(1.0 / factor);
  return factor > 0 && factor <= 1 && is_reciprocal_of(factor, number, dtype);
}

// A normal number with at most `bits` significant bits, its exponent (of a fraction from 0.5 to 1) within the bounds.
bool has_bits(double value, int bits, int lowest, int highest) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return exponent >= lowest && exponent <= highest && is_whole(std::ldexp(fraction, bits));
}

bool is_exact(double value, DType dtype) {
  if (dtype == DType::float16) return has_bits(value, 11, -13, 16);
  if (dtype == DType::bfloat16) return has_bits(value, 8, -125, 128);
  return true;
}

// Maps the factors to NCCL's; otherwise returns why that is impossible.
std::string scale_by_nccl(const CollectiveCall& call, ReductionPlan& plan) {
  const double factor = call.prescale * call.postscale;
  if (plan.op != Op::sum) return "it can scale sums only; scale the tensors yourself";
  if (is_floating(call.dtype)) {
    if (is_reciprocal_of(factor, 1.0, call.dtype)) return "";
    if (is_reciprocal_of(factor, call.set->size(), call.dtype)) {
      plan.op = Op::average;
    } else if (is_exact(factor, call.dtype) || is_reciprocal(factor, call.dtype)) {
      plan.scale = factor;
    } else {
      return "a factor of " + std::to_string(factor) +
             " cannot be represented in this type; scale the tensors yourself";
    }
    return "";
  }
  if (call.prescale == 1.0 && is_reciprocal_of(call.postscale, call.set->size(), call.dtype)) {
    plan.op = Op::average;
  } else if (is_whole(call.prescale) && is_whole(factor)) {
    if (factor != 1.0) plan.scale = factor;
  } else {
    return "integers can be multiplied by whole numbers, and averaged over all ranks; scale the tensors yourself";
  }
  return "";
}

}  // namespace

ReductionPlan plan_reduction(const CollectiveCall& call, bool kernels) {
  ReductionPlan plan{.type = type_for(call, kernels), .op = op_for(call)};
  const bool widened = call.dtype == DType::int16;
  const bool scales = (call.prescale != 1.0 || call.postscale != 1.0) && call.dtype != DType::boolean;
  if (!scales && !widened) return plan;
  const std::string objection = widened ? "it has no such type" : scale_by_nccl(call, plan);
  if (objection.empty()) return plan;
  if (!kernels) refuse(call, objection);
  plan.by_kernels = true;
  if (scales) plan.before = call.prescale, plan.after = call.postscale;
  return plan;
}

Packing plan_packing(const CollectiveCall& call, const ReductionPlan& plan, bool kernels) {
  Packing packing;
  if (!kernels || !(plan.by_kernels || call.collective == Collective::allreduce)) return packing;
  for (std::size_t i = 0; i < call.pieces.size(); ++i) {
    const std::int64_t elements = call.pieces[i].elements;
    const bool small = elements * static_cast<std::int64_t>(size_of(call.dtype)) < kSmallBytes;
    if (elements == 0 || !(small || plan.by_kernels)) continue;
    packing.pieces.push_back({i, packing.elements});
    packing.elements += (elements + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  }
  if (packing.pieces.size() == 1 && !plan.by_kernels) return {};
  return packing;
}

}  // namespace hvd::nccl

// Chooses how NCCL performs a reduction, or why it cannot. Pure; depends only on negotiated values, so it is the same
// on every rank.
//
// hvd reduces with factors before and after. NCCL has no separate pass over the data for either, but can multiply each
// input of a sum by one factor of the tensors' type, and divide a sum by the number of ranks. NCCL is used for:
//
//   sums of floats      both factors as one. Of a 16-bit type it must be a number of that type, or the result would be
//                       off by up to 2^-9; except in an average (a factor of 1/n), which NCCL rounds in the same way
//   sums of integers    an integer factor; or the average over all ranks, truncated toward zero as hvd's own is
//   other reductions    no factor
//
// All others need hvd's own kernels (ops/cuda/bucket_kernels.h), which scale while they pack and unpack, and widen the
// type that NCCL does not support. Without kernels they are refused rather than performed differently.
#pragma once

#include <optional>

#include "core/operation/collective_call.h"
#include "ops/nccl/nccl_abi.h"

namespace hvd::nccl {

struct ReductionPlan {
  Type type = Type::float32;
  Op op = Op::sum;
  std::optional<double> scale{};  // with op sum: factor of each input
  bool by_kernels = false;        // each tensor is packed, scaled by `before`, and unpacked, scaled by `after`
  double before = 1.0, after = 1.0;

  bool operator==(const ReductionPlan&) const = default;
};

// `kernels`: all ranks have them. Throws Unsupported with the reason and advice.
ReductionPlan plan_reduction(const CollectiveCall& call, bool kernels);

}  // namespace hvd::nccl

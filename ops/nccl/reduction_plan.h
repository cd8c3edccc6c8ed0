// How NCCL does a reduction, or why it does not. Pure; the same on every rank, since it reads only what was negotiated.
//
// hvd reduces with factors before and after. NCCL has no pass over the data of its own for either, but can multiply
// each input of a sum by one factor of the tensors' type on its way in, and divide a sum by the number of ranks. What
// comes to that is done so:
//
//   sums of floats      both factors as one. Of a 16-bit type it has to be a number of that type, for it would else be
//                       off by up to 2^-9; except in an average (a factor of 1/n), which NCCL rounds in the same way
//   sums of integers    a whole number; or the average over all ranks, truncated toward zero as hvd's own is
//   other reductions    no factor
//
// Anything else needs hvd's own kernels (ops/cuda/bucket_kernels.h), which scale while they pack and unpack, and widen
// the type that NCCL does not have. Where there are none it is not done, rather than done differently.
#pragma once

#include <optional>

#include "core/collective/collective_call.h"
#include "ops/nccl/nccl_abi.h"

namespace hvd::nccl {

struct ReductionPlan {
  Type type = Type::float32;
  Op op = Op::sum;
  std::optional<double> scale{};  // with op sum: of each input
  bool by_kernels = false;        // each tensor is packed, scaled by `before`, and unpacked, scaled by `after`
  double before = 1.0, after = 1.0;

  bool operator==(const ReductionPlan&) const = default;
};

// `kernels`: all ranks have them. Throws Unsupported that says why and what to do.
ReductionPlan plan_reduction(const CollectiveCall& call, bool kernels);

}  // namespace hvd::nccl

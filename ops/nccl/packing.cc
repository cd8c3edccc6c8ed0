#include "ops/nccl/packing.h"

namespace hvd::nccl {

Packing plan_packing(const CollectiveCall& call, const ReductionPlan& plan, bool kernels) {
  Packing packing;
  if (!kernels || !(plan.by_kernels || call.collective == Collective::allreduce)) return packing;
  for (std::size_t i = 0; i < call.pieces.size(); ++i) {
    const std::int64_t elements = call.pieces[i].elements;
    const bool small = elements * static_cast<std::int64_t>(size_of(call.dtype)) < kSmallBytes;
    if (elements == 0 || !(small || plan.by_kernels)) continue;
    packing.places.push_back({i, packing.elements});
    packing.elements += (elements + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  }
  if (packing.places.size() == 1 && !plan.by_kernels) return {};
  return packing;
}

}  // namespace hvd::nccl

// Decides which tensors are performed together: small allreduces are fused, to pay the latency of a collective once.
//
// Pure. Called by the engine of every rank with the same executes in the same order, so the result is the same on all
// ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/control/protocol/response.h"
#include "core/execution/bucket.h"

namespace hvd {

// Every tensor of every response is in exactly one bucket; buckets are in the order of their first tensors.
//
// Allreduce tensors (also of grouped operations) share a bucket of up to `threshold_bytes` if process set, dtype, op,
// scales, device and number of contributing ranks are equal, regardless of other operations in between. A tensor above
// the threshold is alone; with threshold 0 every tensor is. Other collectives: one bucket for each tensor, and one
// without a tensor for a barrier.
//
// The buckets point into the responses, which are all of Kind::execute and outlive them.
std::vector<Bucket> plan_buckets(const std::vector<const Response*>& executes, std::int64_t threshold_bytes);

}  // namespace hvd

// Which tensors are performed together: small allreduces are fused, since each collective costs its latency once.
//
// Pure. Called by the engine of every rank with the same executes in the same order, and so with the same result
// everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "core/fusion/bucket.h"
#include "core/negotiation/response.h"

namespace hvd {

// Every tensor of every response lands in exactly one bucket; buckets are in the order of their first tensors.
//
// Allreduce tensors (a group's as well) share a bucket of up to `threshold_bytes` if process set, dtype, op, scales,
// device and number of contributing ranks are equal; other operations in between do not separate them. A tensor above
// the threshold is alone; with threshold 0 every tensor is. Every other collective: a bucket for each tensor, and one
// without a tensor for a barrier.
//
// The buckets point into the responses, which are all of Kind::execute and outlive them.
std::vector<Bucket> plan_buckets(const std::vector<const Response*>& executes, std::int64_t threshold_bytes);

}  // namespace hvd

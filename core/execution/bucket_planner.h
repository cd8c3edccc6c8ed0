// Decides which tensors are performed together: small allreduces are fused into buckets, to pay the latency of a
// collective once; the buckets of a locked schedule are arranged in stages.
//
// Pure. Called by the engine of every rank with the same responses in the same order, so the result is the same on all
// ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/control/protocol/response.h"

namespace hvd {

class Operation;

// An operation that all ranks are ready for, and this rank's part in it.
struct ReadyOperation {
  const Response* response = nullptr;
  Operation* own = nullptr;  // null: this rank has none (it has joined), or not yet
};

// Tensors that are performed as one collective. Refers to the responses and operations from which it was planned.
struct Bucket {
  struct Item {
    const Response* response = nullptr;
    std::size_t tensor = 0;  // index into response->spec.tensors
    Operation* own = nullptr;
  };
  // Same process set, collective, dtype, op, scales, device and number of contributing ranks; barrier: one item, no
  // tensor.
  std::vector<Item> items;

  const Response& response() const { return *items.front().response; }
  const OperationSpec& spec() const { return response().spec; }
};

// Every tensor of every operation is in exactly one bucket; buckets are in the order of their first tensors.
//
// Allreduce tensors (also of grouped operations) share a bucket of up to `threshold_bytes` if process set, dtype, op,
// scales, device and number of contributing ranks are equal, regardless of other operations in between. A tensor above
// the threshold is alone; with threshold 0 every tensor is. Other collectives: one bucket for each tensor, and one
// without a tensor for a barrier.
//
// The responses are all of Kind::execute, and outlive the buckets.
std::vector<Bucket> plan_buckets(const std::vector<ReadyOperation>& operations, std::int64_t threshold_bytes);
// The same before this rank has submitted anything.
std::vector<Bucket> plan_buckets(const std::vector<const Response*>& responses, std::int64_t threshold_bytes);

// A stage of a locked schedule: a bucket, or several consecutive ones if they have tensors of one operation, which is
// performed entirely or not at all.
using Stage = std::vector<Bucket>;

// Plans the buckets of each group of responses, in their order, and arranges them in stages. Each response is in one.
std::vector<Stage> plan_stages(const std::vector<std::vector<const Response*>>& groups, std::int64_t threshold_bytes);

// The responses with tensors in the stage, each once.
std::vector<const Response*> responses_of(const Stage& stage);

}  // namespace hvd

// A bucket: tensors that are performed as one collective, to pay its latency once. How buckets are planned from what
// all ranks are ready for, how those of a locked schedule are arranged in stages, and the call that a backend performs
// for one.
//
// Called by the engine of every rank with the same responses in the same order, so the result is the same on all ranks.
// Pure except for the allocation of outputs whose size is known only after the negotiation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/config.h"
#include "core/control/protocol/messages.h"
#include "core/device/device_runtime.h"
#include "core/operation/collective_call.h"
#include "core/operation/operation.h"

namespace hvd {

// Refers to the responses and operations from which it was planned.
struct Bucket {
  // A tensor of an operation that all ranks are ready for.
  struct Item {
    const Response* response = nullptr;
    Operation* own = nullptr;  // this rank's part; null: it has none (it has joined), or not yet
    std::size_t tensor = 0;    // index into response->spec.tensors
  };
  // Same process set, collective, dtype, op, scales, device and number of contributing ranks; barrier: one item, no
  // tensor.
  std::vector<Item> items;

  const Response& response() const;
  const OperationSpec& spec() const;
};

// Plans the buckets of `operations`, an item for each; all their tensors are planned. Every tensor is in exactly one
// bucket; buckets are in the order of their first tensors.
//
// Allreduce tensors (also of grouped operations) share a bucket of up to `threshold_bytes` if process set, dtype, op,
// scales, device and number of contributing ranks are equal, regardless of other operations in between. A tensor above
// the threshold is alone; with threshold 0 every tensor is. Other collectives: one bucket for each tensor, and one
// without a tensor for a barrier.
//
// The responses are all of Kind::execute, and outlive the buckets.
std::vector<Bucket> plan_buckets(const std::vector<Bucket::Item>& operations, std::int64_t threshold_bytes);
// The same before this rank has submitted anything.
std::vector<Bucket> plan_buckets(const std::vector<const Response*>& responses, std::int64_t threshold_bytes);

// A stage of a locked schedule: a bucket, or several consecutive ones if they have tensors of one operation, which is
// performed entirely or not at all.
using Stage = std::vector<Bucket>;

// Plans the buckets of each group of responses, in their order, and arranges them in stages. Each response is in one.
std::vector<Stage> plan_stages(const std::vector<std::vector<const Response*>>& groups, std::int64_t threshold_bytes);

// The responses with tensors in the stage, each once.
std::vector<const Response*> responses_of(const Stage& stage);

// Builds the call for `bucket` at the rank with position `position` in `set`. Where the bucket has no operation of this
// rank (it has joined), it takes part with neutral elements or without rows, and gets no result. `divisor` is that of
// averages. `devices`: for outputs on a device. Throws Internal if a response does not fit this rank's operation, Error
// if memory is exhausted.
CollectiveCall build_call(const Bucket& bucket, const ProcessSet& set, int position, JoinDivisor divisor,
                          DeviceRuntime* devices = nullptr);

// The same for an allreduce or a broadcast of one tensor that every rank has; the addresses are filled in later.
CollectiveCall build_call_without_memory(const Bucket& bucket, const ProcessSet& set, JoinDivisor divisor);

}  // namespace hvd

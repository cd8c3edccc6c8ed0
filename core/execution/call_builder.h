// Builds the call that a backend performs from a negotiated bucket and this rank's operations. Pure except for the
// allocation of outputs whose size is known only after the negotiation.
#pragma once

#include "core/config.h"
#include "core/device/device_runtime.h"
#include "core/execution/bucket_planner.h"
#include "core/operation/collective_call.h"
#include "core/operation/operation.h"

namespace hvd {

// Builds the call for `bucket` at the rank with position `position` in `set`. Where the bucket has no operation of this
// rank (it has joined), it takes part with neutral elements or without rows, and gets no result. `divisor` is that of
// averages. `devices`: for outputs on a device. Throws Internal if a response does not fit this rank's operation, Error
// if memory is exhausted.
CollectiveCall build_call(const Bucket& bucket, const ProcessSet& set, int position, JoinDivisor divisor,
                          DeviceRuntime* devices = nullptr);

// The same for an allreduce or a broadcast of one tensor that every rank has; the addresses are filled in later.
CollectiveCall build_call_without_memory(const Bucket& bucket, const ProcessSet& set, JoinDivisor divisor);

}  // namespace hvd

// Builds the call that a backend performs from a negotiated bucket and this rank's submissions. Pure except for the
// allocation of outputs whose size is known only after the negotiation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/config.h"
#include "core/device/device_runtime.h"
#include "core/execution/bucket.h"
#include "core/operation/collective_call.h"
#include "core/operation/submission.h"

namespace hvd {

// The rows of each of `size` ranks in a reducescatter of `rows`: the remainder goes to the first ranks.
std::vector<std::int64_t> even_split(std::int64_t rows, int size);

// Builds the call for `bucket` at the rank with position `position` in `set`. `owns`: this rank's submissions, one for
// each item; null if it has none (it has joined): it takes part with neutral elements or without rows, and gets no
// result. `divisor` is that of averages. `devices`: for outputs on a device. Throws Internal if a response does not fit
// this rank's submission, Error if memory is exhausted.
CollectiveCall build_call(const Bucket& bucket, const ProcessSet& set, int position, std::span<Submission* const> owns,
                          JoinDivisor divisor, DeviceRuntime* devices = nullptr);

// The same for an allreduce or a broadcast of one tensor that every rank has; the addresses are filled in later.
CollectiveCall build_call_without_memory(const Bucket& bucket, const ProcessSet& set, JoinDivisor divisor);

}  // namespace hvd

// From a negotiated bucket and this rank's submissions to the call that a backend performs. Pure but for the
// allocation of outputs whose size only the negotiation knows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/collective_call.h"
#include "core/config.h"
#include "core/device/device_runtime.h"
#include "core/fusion/bucket.h"
#include "core/submission/submission.h"

namespace hvd {

// Rows that each of `size` ranks receives of `rows` in a reducescatter: what does not divide evenly goes to the first.
std::vector<std::int64_t> even_split(std::int64_t rows, int size);

// The call for `bucket` at the rank with position `position` in `set`, whose submissions `owns` are, one for each item.
// A rank that does not have one (it has joined: null) takes part with neutral elements or without rows, and gets no
// result. `divisor` is that of averages. `devices`: for outputs that lie on one. Throws Internal if a response does not
// fit this rank's submission, Error if there is no memory.
CollectiveCall build_call(const Bucket& bucket, const ProcessSet& set, int position, std::span<Submission* const> owns,
                          JoinDivisor divisor, DeviceRuntime* devices = nullptr);

// The same for an allreduce or a broadcast of one tensor that every rank has, with addresses that are still to come.
CollectiveCall build_call_without_memory(const Bucket& bucket, const ProcessSet& set, JoinDivisor divisor);

}  // namespace hvd

// From a negotiated bucket and this rank's submissions to the call that a backend performs. Pure but for the
// allocation of outputs whose size only the negotiation knows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/collective/collective_call.h"
#include "core/config.h"
#include "core/fusion/bucket.h"
#include "core/submission/pending_table.h"

namespace hvd {

// Rows that each of `size` ranks receives of `rows` in a reducescatter: what does not divide evenly goes to the first.
std::vector<std::int64_t> even_split(std::int64_t rows, int size);

// The call for `bucket` at the rank with position `position` in `set`. A rank that does not have a submission (it has
// joined) takes part with neutral elements or without rows, and gets no result. `divisor` is that of averages. Throws
// Internal if a response does not fit this rank's submission.
CollectiveCall build_call(const Bucket& bucket, const ProcessSet& set, int position, const PendingTable& pending,
                          JoinDivisor divisor);

}  // namespace hvd

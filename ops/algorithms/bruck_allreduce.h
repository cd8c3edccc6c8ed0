// Allreduce by gathering all values: every rank collects the values of all ranks in log2 N rounds, then reduces
// everything, as in one shot.
//
// Rounds: ceil(log2 N). In round k, with d = 2^k, position p sends what it has collected, the values of p, ..., p+d-1,
// to p-d, and receives those of p+d, ..., p+2d-1 from p+d; the last round sends only what is missing. Bytes sent and
// received per rank: (N-1) S, in the tensors' own type, as in one shot; but log2 N messages in as many latencies, where
// one shot has N-1 messages in one. Suited to short messages between many ranks, or where a message costs the processor
// more than its transmission takes. Slices are folded in the canonical order.
// Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", 1997 (concatenation).
#pragma once

#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// Values of either type. Messages of the first round have the step of tag, later rounds the following ones.
void bruck_allreduce(const SlicedReduction& work);

}  // namespace hvd

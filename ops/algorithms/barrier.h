// Dissemination barrier.
//
// In round k every rank sends to the rank 2^k after it and receives from the rank 2^k before it; after ceil(log2 N)
// rounds each has received, directly or indirectly, from all. Empty messages, one sent and one received per round.
// Source: D. Hensgen, R. Finkel and U. Manber, "Two algorithms for barrier synchronization", 1988.
#pragma once

#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// Returns on no member before all have called.
void dissemination_barrier(Transport& transport, std::span<const int> members, int position, Tag tag,
                           Deadline deadline);

}  // namespace hvd

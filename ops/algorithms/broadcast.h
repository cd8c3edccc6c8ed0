// Broadcast along a chain: root, root+1, ..., root-1.
//
// A segment is passed on as soon as it has come. With S bytes in c segments and N ranks: (N-2+c) segment times, so
// S / bandwidth for large S, which no algorithm undercuts; every rank but the last sends S bytes. Small messages pay
// N-1 latencies where a binomial tree would pay log2 N, but several of them in a row overlap along the chain.
#pragma once

#include <cstddef>
#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// `members[root]` has the data, all others get it. The size is the same on all members.
void chain_broadcast(Transport& transport, std::span<const int> members, int position, int root,
                     std::span<std::byte> data, Tag tag, Deadline deadline);

}  // namespace hvd

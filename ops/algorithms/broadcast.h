// Broadcast along a chain: root, root+1, ..., root-1.
//
// A segment is forwarded as soon as it has arrived. With S bytes in c segments and N ranks: (N-2+c) segment times, so S
// / bandwidth for large S, which is optimal; every rank but the last sends S bytes. Small messages take N-1 latencies
// where a binomial tree would take log2 N, but several consecutive ones overlap along the chain.
#pragma once

#include <cstddef>
#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// `members[root]` has the data, all others receive it. The size is the same on all members.
void chain_broadcast(Transport& transport, std::span<const int> members, int position, int root,
                     std::span<std::byte> data, Tag tag, Deadline deadline);

}  // namespace hvd

// Allgather by direct exchange (pairwise_exchange.h): every rank sends its block to every other rank.
//
// Steps: N-1, none of which waits for another. Bytes sent per rank: N-1 times its own block; received: all others'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// Block r of the buffer, the bytes [block_bounds[r], block_bounds[r + 1]), belongs to position r. On return every block
// contains its owner's data. The bounds are the same on all members.
void pairwise_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                        std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline);

}  // namespace hvd

// Allgather on a ring: the second half of the ring allreduce (ring_pass.h), on bytes.
//
// Steps: N-1. Bytes sent per rank: all blocks but the right neighbour's. Blocks may differ in size; the time is N-1
// times that of the longest block.
#pragma once

#include <cstdint>
#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// Block r of the buffer, the bytes [block_bounds[r], block_bounds[r + 1]), belongs to position r. On return every block
// contains its owner's data. The bounds are the same on all members.
void ring_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                    std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline);

}  // namespace hvd

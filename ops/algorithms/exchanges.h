// The other algorithms over a transport: they move bytes between the members of a process set, and reduce nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// Dissemination. Returns on no member before all have called.
void dissemination_barrier(Transport& transport, std::span<const int> members, int position, Tag tag,
                           Deadline deadline);

// Along a chain. `members[root]` has the data, all others receive it. The size is the same on all
// members.
void chain_broadcast(Transport& transport, std::span<const int> members, int position, int root,
                     std::span<std::byte> data, Tag tag, Deadline deadline);

// The second half of a ring (ring.cc). Block r of the buffer, the bytes [block_bounds[r], block_bounds[r + 1]), belongs
// to position r. On return every block contains its owner's data. The bounds are the same on all members.
//
// Steps: N-1. Bytes sent per rank: all blocks but the right neighbour's. Blocks may differ in size; the time is N-1
// times that of the longest block.
void ring_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                    std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline);

// By direct exchange: every rank sends its block to every other rank: N-1 times its own block sent, all
// others' received.
//
// Block r of the buffer, the bytes [block_bounds[r], block_bounds[r + 1]), belongs to position r. On return every block
// contains its owner's data. The bounds are the same on all members.
void pairwise_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                        std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline);

// By direct exchange. Bytes per rank: exactly those it sends and receives.
//
// Block d of the input, the bytes [input_bounds[d], input_bounds[d + 1]), goes to position d; block s of the output
// comes from position s. The block that one rank sends to another must be as long as the other expects; empty blocks
// need no message. Input and output must not overlap.
void pairwise_alltoall(Transport& transport, std::span<const int> members, int position, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds, Tag tag, Deadline deadline);

}  // namespace hvd

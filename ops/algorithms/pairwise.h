// Collectives by direct exchange: in step r every rank sends to the r-th rank after it and receives from the r-th
// before it.
//
// Steps: N-1, of which a few run at a time and none waits for another's data. The ranks are staggered, so that no rank
// is the target of two in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// Every rank sends its block to every other rank: N-1 times its own block sent, all others' received.
//
// Block r of the buffer, the bytes [block_bounds[r], block_bounds[r + 1]), belongs to position r. On return every block
// contains its owner's data. The bounds are the same on all members.
void pairwise_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                        std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline);

// Bytes per rank: exactly those it sends and receives.
//
// Block d of the input, the bytes [input_bounds[d], input_bounds[d + 1]), goes to position d; block s of the output
// comes from position s. The block that one rank sends to another must be as long as the other expects; empty blocks
// need no message. Input and output must not overlap.
void pairwise_alltoall(Transport& transport, std::span<const int> members, int position, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds, Tag tag, Deadline deadline);

}  // namespace hvd

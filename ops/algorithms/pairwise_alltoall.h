// Alltoall by direct exchange (pairwise_exchange.h). Steps: N-1. Bytes per rank: exactly those it sends and receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/transport/transport.h"

namespace hvd {

// Block d of the input, the bytes [input_bounds[d], input_bounds[d + 1]), goes to position d; block s of the output
// comes from position s. The block that one rank sends to another must be as long as the other expects; empty blocks
// need no message. Input and output must not overlap.
void pairwise_alltoall(Transport& transport, std::span<const int> members, int position, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds, Tag tag, Deadline deadline);

}  // namespace hvd

// The exchange that the pairwise algorithms share: in step r every rank sends to the r-th rank after it and receives
// from the r-th before it.
//
// Steps: N-1, of which a few run at a time. The ranks are staggered, so that no rank is the target of two in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/transport/transport.h"

namespace hvd {

// Block i of the buffer: the bytes [bounds[i], bounds[i + 1]).
template <typename Byte>
std::vector<std::span<Byte>> blocks_of(Byte* buffer, std::span<const std::int64_t> bounds) {
  std::vector<std::span<Byte>> blocks;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const auto size = static_cast<std::size_t>(bounds[i + 1] - bounds[i]);
    blocks.push_back(size == 0 ? std::span<Byte>{} : std::span<Byte>(buffer + bounds[i], size));
  }
  return blocks;
}

// outgoing[d] goes to position d, incoming[s] comes from position s; this rank's own entries are ignored. The block
// that one rank sends to another must be as long as the other expects; empty blocks need no message. Messages take
// steps from tag.step upwards.
void pairwise_exchange(Transport& transport, std::span<const int> members, int position,
                       std::span<const std::span<const std::byte>> outgoing,
                       std::span<const std::span<std::byte>> incoming, Tag tag, Deadline deadline);

}  // namespace hvd

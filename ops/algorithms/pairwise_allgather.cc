#include "ops/algorithms/pairwise_allgather.h"

#include "ops/algorithms/pairwise_exchange.h"

namespace hvd {

void pairwise_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                        std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline) {
  const auto incoming = blocks_of(buffer, block_bounds);
  const std::vector<std::span<const std::byte>> outgoing(members.size(), incoming[static_cast<std::size_t>(position)]);
  pairwise_exchange(transport, members, position, outgoing, incoming, tag, deadline);
}

}  // namespace hvd

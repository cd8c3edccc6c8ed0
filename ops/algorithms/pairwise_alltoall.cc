#include "ops/algorithms/pairwise_alltoall.h"

#include <algorithm>

#include "ops/algorithms/pairwise_exchange.h"

namespace hvd {

void pairwise_alltoall(Transport& transport, std::span<const int> members, int position, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds, Tag tag, Deadline deadline) {
  const auto outgoing = blocks_of(input, input_bounds);
  const auto incoming = blocks_of(output, output_bounds);
  const auto own = static_cast<std::size_t>(position);
  std::copy(outgoing[own].begin(), outgoing[own].end(), incoming[own].begin());
  pairwise_exchange(transport, members, position, outgoing, incoming, tag, deadline);
}

}  // namespace hvd

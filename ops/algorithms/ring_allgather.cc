#include "ops/algorithms/ring_allgather.h"

#include "ops/algorithms/ring_pass.h"

namespace hvd {

void ring_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                    std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline) {
  const SlicedReduction bytes{.transport = transport,
                              .members = members,
                              .position = position,
                              .reduction = {.dtype = DType::uint8},
                              .value_type = DType::uint8,
                              .results = buffer,
                              .slice_bounds = block_bounds,
                              .tag = tag,
                              .deadline = deadline};
  run_ring(bytes, RingSteps::allgather);
}

}  // namespace hvd

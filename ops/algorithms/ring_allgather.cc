#include "ops/algorithms/ring_allgather.h"

#include "ops/algorithms/ring_pass.h"

namespace hvd {

void ring_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                    std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline) {
  const RingPass pass{.transport = transport,
                      .members = members,
                      .position = position,
                      .element_type = DType::uint8,
                      .buffer = buffer,
                      .slice_bounds = block_bounds,
                      .tag = tag,
                      .deadline = deadline};
  run_ring(pass, RingPass::Steps::allgather);
}

}  // namespace hvd

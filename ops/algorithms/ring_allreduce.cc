#include "ops/algorithms/ring_allreduce.h"

#include "ops/algorithms/ring_pass.h"

namespace hvd {

void ring_allreduce(Transport& transport, std::span<const int> members, int position, DType element_type, ReduceOp op,
                    void* buffer, std::span<const std::int64_t> slice_bounds, Tag tag, Deadline deadline) {
  const RingPass pass{.transport = transport,
                      .members = members,
                      .position = position,
                      .element_type = element_type,
                      .op = op,
                      .buffer = buffer,
                      .slice_bounds = slice_bounds,
                      .tag = tag,
                      .deadline = deadline};
  run_ring(pass, RingPass::Steps::all);
}

}  // namespace hvd

// Allreduce on a ring: reduce-scatter, then allgather, pipelined through each other (ring_pass.h).
//
// Steps: 2(N-1), each waiting for a neighbour only. Bytes sent and received per rank: 2(N-1)/N of the buffer, the least
// that any allreduce can do. Time: 2(N-1) latencies + 2(N-1)/N * S / bandwidth; best for large buffers.
// Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#pragma once

#include <cstdint>
#include <span>

#include "core/collective/collective.h"
#include "core/tensor/dtype.h"
#include "ops/transport/transport.h"

namespace hvd {

// In place. `members` are global ranks in ring order and `position` is this rank's in it. `element_type` is an
// accumulator type: nothing is scaled or rounded here. Slice h of the buffer is [slice_bounds[h], slice_bounds[h + 1]);
// there are as many slices as members, equal on all of them, of any size. Messages take steps from tag.step upwards.
// With one member nothing happens.
void ring_allreduce(Transport& transport, std::span<const int> members, int position, DType element_type, ReduceOp op,
                    void* buffer, std::span<const std::int64_t> slice_bounds, Tag tag, Deadline deadline);

}  // namespace hvd

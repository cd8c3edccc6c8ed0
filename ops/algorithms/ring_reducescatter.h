// Reduce-scatter on a ring: the first half of the ring allreduce (ring_pass.h).
//
// Steps: N-1. Bytes sent per rank: all slices but the own one, (N-1)/N of the buffer if they are equal.
// Source: as ring_allreduce.h.
#pragma once

#include <cstdint>
#include <span>

#include "core/collective/collective.h"
#include "core/tensor/dtype.h"
#include "ops/transport/transport.h"

namespace hvd {

// Parameters as for ring_allreduce. Afterwards the slice at this rank's position is complete; the others hold partial
// results that mean nothing.
void ring_reducescatter(Transport& transport, std::span<const int> members, int position, DType element_type,
                        ReduceOp op, void* buffer, std::span<const std::int64_t> slice_bounds, Tag tag,
                        Deadline deadline);

}  // namespace hvd

// Reduce-scatter on a ring: the first half of the ring allreduce (ring_pass.h).
//
// Steps: N-1. Bytes sent per rank: all slices but its own, (N-1)/N of the buffer if they are equal.
// Source: as ring_allreduce.h.
#pragma once

#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// Like ring_allreduce, but only the slice at this rank's position gets results and is made complete.
void ring_reducescatter(const SlicedReduction& work);

}  // namespace hvd

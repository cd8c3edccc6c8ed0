// Allreduce on a ring: reduce-scatter, then allgather, as one pipeline (ring_pass.h).
//
// Steps: 2(N-1), each waiting for a neighbour only. Bytes sent and received per rank: 2(N-1)/N of the buffer, the
// minimum of any allreduce; 16-bit floats are sent as float32 in the first half and in 16 bits in the second. Time:
// 2(N-1) latencies + 2(N-1)/N * S / bandwidth; best for large buffers.
// Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#pragma once

#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// Values are accumulators. Slices may be of any size. Messages take steps from tag.step upwards.
void ring_allreduce(const SlicedReduction& work);

}  // namespace hvd

// The ring algorithms: slices are sent around a ring of ranks in segments.
//
// Idea. Position p sends only to p+1 and receives only from p-1. The values have N slices. In step t (0 <= t < 2N-2), p
// sends slice p-1-t and receives slice p-2-t (mod N), which is what it sends in step t+1. In the first N-1 steps
// partial sums arrive, as accumulators, and this rank's values are folded into them; the last of these steps completes
// slice p, which is scaled and rounded here and nowhere else. In the last N-1 steps results arrive, in the tensors' own
// type, and replace what is there.
//
// Pipeline. A slice is sent in segments of kRingSegmentBytes of accumulators. A segment is forwarded as soon as it was
// folded, while the next ones are still in transit, so that arithmetic overlaps with transmission and both directions
// stay busy. kReceivesAhead receives are always posted; those that will be folded use scratch memory that stays in
// cache. This rank's values are made ready segment by segment. Of the segments that start here kSendsAhead are sent
// before any has arrived and then two for each segment that arrives, so that filling them delays nothing, and soon as
// many as possible are in transit: a delayed rank must not stop the others at once.
//
// Order. The value of an element of slice h is folded at h+1, h+2, ..., h in this order, whatever the timing: the same
// bits in every run, and one result that is copied, not recomputed, on every rank.
//
// A result may be received into memory whose partial value was sent before: its arrival proves that the partial value
// has been sent, since it is part of the sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

inline constexpr std::int64_t kRingSegmentBytes = 64 << 10;
inline constexpr std::size_t kReceivesAhead = 8;
inline constexpr std::size_t kSendsAhead = 16;

// Allreduce: reduce-scatter, then allgather, as one pipeline. Values are accumulators. Slices may be of any size.
// Messages take steps from tag.step upwards.
//
// Steps: 2(N-1), each waiting for a neighbour only. Bytes sent and received per rank: 2(N-1)/N of the buffer, the
// minimum of any allreduce; 16-bit floats are sent as float32 in the first half and in 16 bits in the second. Time:
// 2(N-1) latencies + 2(N-1)/N * S / bandwidth; best for large buffers.
// Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
void ring_allreduce(const SlicedReduction& work);

// The first half: only the slice at this rank's position gets results and is made complete. Steps: N-1. Bytes sent per
// rank: all slices but its own, (N-1)/N of the buffer if they are equal.
void ring_reducescatter(const SlicedReduction& work);

// The second half, on bytes. Block r of the buffer, the bytes [block_bounds[r], block_bounds[r + 1]), belongs to
// position r. On return every block contains its owner's data. The bounds are the same on all members.
//
// Steps: N-1. Bytes sent per rank: all blocks but the right neighbour's. Blocks may differ in size; the time is N-1
// times that of the longest block.
void ring_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                    std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline);

}  // namespace hvd

// What the ring algorithms share: slices that travel round a ring of ranks in segments.
//
// Idea. Position p sends only to p+1 and receives only from p-1. The buffer has N slices. In step t (0 <= t < 2N-2),
// p sends slice p-1-t and receives slice p-2-t (mod N), which is what it sends in step t+1. In the first N-1 steps
// what comes in is folded into the own values; after them p holds the complete slice p. In the last N-1 steps complete
// slices come in and replace what is there.
//
// Pipeline. A slice moves in segments of kRingSegmentBytes. A segment is sent on as soon as it was folded, while the
// next ones are still on their way, so that the arithmetic hides behind the wire and both directions stay busy.
// kReceivesAhead receives are always posted; those that will be folded land in scratch memory that stays in cache.
//
// Order. The value of an element of slice h is folded at h+1, h+2, ..., h in this order, whatever the timing: the same
// bits in every run, and one result that is copied, not recomputed, on every rank.
//
// A complete segment may be received into memory whose partial value was sent before: that it comes proves that the
// partial value has left, since it went into the sum.
#pragma once

#include <cstdint>
#include <span>

#include "core/collective/collective.h"
#include "core/tensor/dtype.h"
#include "ops/transport/transport.h"

namespace hvd {

inline constexpr std::int64_t kRingSegmentBytes = 64 << 10;
inline constexpr std::size_t kReceivesAhead = 8;

struct RingPass {
  enum class Steps { reduce_scatter, allgather, all };  // the first N-1 steps, the last N-1 steps, both

  Transport& transport;
  std::span<const int> members;  // global ranks in ring order
  int position = 0;              // of this rank in members
  DType element_type = DType::float32;
  ReduceOp op = ReduceOp::sum;
  void* buffer = nullptr;
  std::span<const std::int64_t> slice_bounds;  // in elements, members.size() + 1
  Tag tag;                                     // of the first message; the step is counted up from there
  Deadline deadline;
};

// Runs the steps. With one member there are none.
void run_ring(const RingPass& pass, RingPass::Steps steps);

}  // namespace hvd

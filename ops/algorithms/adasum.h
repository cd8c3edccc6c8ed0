// Allreduce with Adasum, over any connection between the ranks: sums that shrink where the ranks' vectors point in the
// same direction (ops/reduction/adaptive_sum.h).
//
// The sum of N vectors is a tree over the ranks: (0, 1), (2, 3), ... are added in pairs, then the sums of neighbouring
// pairs, until one is left; a vector without a partner moves up unchanged. Each tensor of a bucket has its own sum.
//
//   1. Every tensor is cut into N slices by its own size (packing.h), and each rank gets its slice of all ranks'
//      tensors, which it widens to accumulators and prescales.
//   2. For each level of the tree the ranks compute the dot products of all pairs over their slices, send them to each
//      other, and add them up in rank order; with the sums each adds its slices of all pairs.
//   3. Each rank scales and rounds its slice of the result, once, and sends it to all others.
//
// Slices are sent by direct exchange. Bytes sent per rank: 2(N-1)/N of the tensors in their own type, as for an
// allreduce by direct exchange; and for each level with P pairs, 24 (N-1) P bytes for each tensor, in one small
// exchange. Levels: ceil(log2 N). Memory: the tensors' size in accumulators for a rank's slices of all vectors; once or
// twice their own size during the exchange, for 16-bit floats and for several tensors or a joined rank.
//
// The order of all additions depends only on the tensor's own size and the number of ranks: the same bits on every
// rank, in every run, on every backend, fused or alone.
//
// Source: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021, whose tree this is;
// there a rank exchanges halves of vectors with one partner per level, which needs a power of two of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/operation/collective_call.h"
#include "ops/algorithms/scratch.h"
#include "ops/reduction/instruction_set.h"

namespace hvd {

// The exchanges that Adasum needs from a backend. Blocks of a buffer are the bytes [bounds[r], bounds[r + 1]), one for
// each rank of the set; bounds are the same on all ranks.
class SliceExchange {
 public:
  virtual ~SliceExchange() = default;

  // Sends block r to rank r. `own` receives a block of this rank's size from each rank, in rank order.
  virtual void scatter(const std::byte* blocks, std::span<const std::int64_t> bounds, std::byte* own) = 0;

  // Block r belongs to rank r. On return every block contains its owner's data.
  virtual void gather(std::byte* blocks, std::span<const std::int64_t> bounds) = 0;
};

// Whether the call is an allreduce with Adasum, of floats.
bool is_adasum(const CollectiveCall& call);

// `position`: of this rank in the call's set. A joined rank contributes zeros. `scratch` is reserved for the call.
void adasum(const CollectiveCall& call, int position, SliceExchange& exchange, Scratch& scratch,
            InstructionSet instruction_set);

}  // namespace hvd

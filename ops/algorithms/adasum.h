// Allreduce with Adasum, over whatever connects the ranks: sums that shrink where the ranks' vectors point the same way
// (ops/reduction/adaptive_sum.h).
//
// The sum of N vectors is a tree over the ranks: (0, 1), (2, 3), ... are added in pairs, then the sums of neighbouring
// pairs, until one is left; who has no partner goes up as it is. Each tensor of a bucket has its own sum.
//
//   1. Every tensor is cut into N slices by its own size (slice_layout.h), and each rank gets its slice of all ranks'
//      tensors, which it widens to accumulators and prescales.
//   2. For each level of the tree the ranks compute the dot products of all pairs over their slices, send them to each
//      other, and add them up in rank order; with the sums each adds its slices of all pairs.
//   3. Each rank scales and rounds its slice of the result, once, and sends it to all others.
//
// Slices travel by direct exchange. Bytes sent per rank: 2(N-1)/N of the tensors in their own type, as for an allreduce
// by direct exchange; and for each level with P pairs, 24 (N-1) P bytes for each tensor, in one small exchange. Levels:
// ceil(log2 N). Memory: the tensors' size in accumulators for a rank's slices of all vectors; once or twice their own
// size while they travel, for 16-bit floats and for several tensors or a joined rank.
//
// The order of all additions follows from the tensor's own size and the number of ranks: the same bits on every rank,
// in every run, on every backend, fused or alone.
//
// Source: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021, whose tree this is;
// there a rank exchanges halves of vectors with one partner a level, which needs a power of two of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/collective/collective_call.h"
#include "ops/algorithms/scratch.h"
#include "ops/reduction/instruction_set.h"

namespace hvd {

// What it needs of a backend. Blocks of a buffer are the bytes [bounds[r], bounds[r + 1]), one for each rank of the
// set; bounds are the same on all ranks.
class SliceExchange {
 public:
  virtual ~SliceExchange() = default;

  // Block r goes to rank r. `own` gets what is for this rank: a block of this rank's size from each, in rank order.
  virtual void scatter(const std::byte* blocks, std::span<const std::int64_t> bounds, std::byte* own) = 0;

  // Block r belongs to rank r. On return every block is filled with what its owner had there.
  virtual void gather(std::byte* blocks, std::span<const std::int64_t> bounds) = 0;
};

// An allreduce that is to be done here: with Adasum, of floats.
bool is_adasum(const CollectiveCall& call);

// `position` is this rank's in the call's set. A joined rank stands for zeros. `scratch` is used for this alone
// meanwhile.
void adasum(const CollectiveCall& call, int position, SliceExchange& exchange, Scratch& scratch,
            InstructionSet instruction_set);

}  // namespace hvd

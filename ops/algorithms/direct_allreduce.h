// Allreduce by direct exchange: every rank receives from each other rank the values for its own slice, reduces them,
// and sends the result to each.
//
//   1. In step i (1 <= i < N) position p sends slice p-i of its values to p-i, and receives slice p from p+i.
//   2. p folds the N contributions to slice p at once, in the canonical order, scales and rounds.
//   3. In step i, p sends its result to p+i, and receives that of p-i.
//
// Latencies: 2 if all steps run at once; a ring has 2(N-1). Bytes sent and received per rank: 2(N-1)/N of the buffer,
// as on a ring, and all of them in the tensors' own type, since no partial sums are sent. The steps are staggered, so
// that no rank is the target of two others in the same step, and up to four of them run at a time; fewer, down to one,
// with long slices, because messages of several senders to one receiver queue up before its link. Best for medium sizes
// and few ranks.
// Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH",
// 2005 (pairwise exchange).
#pragma once

#include <algorithm>
#include <cstddef>

#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// The number of concurrent steps with slices of `slice_bytes`.
constexpr std::size_t direct_steps_in_flight(std::size_t slice_bytes) {
  constexpr std::size_t kMost = 4, kBytes = 64 << 10;
  return std::clamp<std::size_t>(kBytes / std::max<std::size_t>(slice_bytes, 1), 1, kMost);
}

// Values of either type. Messages have the step of tag, and the following one.
void direct_allreduce(const SlicedReduction& work);

}  // namespace hvd

// Allreduce by recursive halving and doubling: partners at distances P/2, P/4, ..., 1 send each other half of the range
// that they still reduce; then results are exchanged with the same partners in reverse order.
//
//   1. With P the largest power of two up to N, the first 2(N-P) positions pair up: the even one sends all its values
//      to the odd one, and is idle until the end. P ranks are left.
//   2. log2 P steps: exchange one half of the range with the partner, fold the received values into the other half,
//      which is the range of the next step. In the end each rank has one P-th, scales and rounds it.
//   3. log2 P steps: exchange results, so that the range doubles.
//   4. The odd positions of step 1 send everything to their even ones.
//
// Latencies: 2 log2 P, and 2 more unless N is a power of two. Bytes sent and received per rank: 2(P-1)/P of the values
// (2 S more for the pairs of step 1). Between the direct exchange and the ring: for medium sizes and many ranks.
//
// The tree of partners determines the order of sums: the same in every run and on every rank, but not the canonical
// order, so that the algorithm changes the bits. It is used only where that is allowed.
// Source: R. Rabenseifner, "Optimization of collective reduction operations", 2004.
#pragma once

#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// Values are accumulators; all of them are made ready before the exchange, and complete after it. Messages have the
// step of tag, and the following one.
void halving_doubling_allreduce(const SlicedReduction& work);

}  // namespace hvd

// Allreduce in one exchange: every rank sends all its values to each other rank, and each reduces everything.
//
// Steps: 1, so one latency. Bytes sent and received per rank: (N-1) S, in the tensors' own type, and N times the
// arithmetic of a ring: for messages so short that only the latency matters. Every rank folds each slice in the
// canonical order, so that all of them compute the same bits.
#pragma once

#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// Values of either type. Every message has the step of tag.
void one_shot_allreduce(const SlicedReduction& work);

}  // namespace hvd

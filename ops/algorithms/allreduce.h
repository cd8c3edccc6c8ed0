// Runs an allreduce by a given algorithm.
#pragma once

#include "ops/algorithms/allreduce_algorithm.h"
#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// Values have the type value_type_of(algorithm), or are accumulators.
void run_allreduce(AllreduceAlgorithm algorithm, const SlicedReduction& work);

}  // namespace hvd

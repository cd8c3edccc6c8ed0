// Runs an allreduce by the algorithm of a given name.
#pragma once

#include "ops/algorithms/allreduce_algorithm.h"
#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

// Values are of value_type_of(algorithm), or accumulators.
void run_allreduce(AllreduceAlgorithm algorithm, const SlicedReduction& work);

}  // namespace hvd

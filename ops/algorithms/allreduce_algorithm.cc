#include "ops/algorithms/allreduce_algorithm.h"

namespace hvd {

const char* algorithm_name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return "one_shot";
    case AllreduceAlgorithm::bruck: return "bruck";
    case AllreduceAlgorithm::direct: return "direct";
    case AllreduceAlgorithm::halving_doubling: return "halving_doubling";
    case AllreduceAlgorithm::ring: return "ring";
  }
  return "unknown";
}

DType value_type_of(AllreduceAlgorithm algorithm, DType dtype) {
  const bool partial_sums_travel =
      algorithm == AllreduceAlgorithm::ring || algorithm == AllreduceAlgorithm::halving_doubling;
  return partial_sums_travel ? accumulator_of(dtype) : dtype;
}

bool keeps_order(AllreduceAlgorithm algorithm) { return algorithm != AllreduceAlgorithm::halving_doubling; }

}  // namespace hvd

#include "ops/algorithms/allreduce.h"

namespace hvd {

void run_allreduce(AllreduceAlgorithm algorithm, const SlicedReduction& args) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return one_shot_allreduce(args);
    case AllreduceAlgorithm::bruck: return bruck_allreduce(args);
    case AllreduceAlgorithm::direct: return direct_allreduce(args);
    case AllreduceAlgorithm::halving_doubling: return halving_doubling_allreduce(args);
    case AllreduceAlgorithm::ring: return ring_allreduce(args);
  }
}

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

#include "ops/algorithms/allreduce.h"

namespace hvd {

void run_allreduce(AllreduceAlgorithm algorithm, const SlicedReduction& work) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return one_shot_allreduce(work);
    case AllreduceAlgorithm::bruck: return bruck_allreduce(work);
    case AllreduceAlgorithm::direct: return direct_allreduce(work);
    case AllreduceAlgorithm::halving_doubling: return halving_doubling_allreduce(work);
    case AllreduceAlgorithm::ring: return ring_allreduce(work);
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

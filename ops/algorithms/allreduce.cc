#include "ops/algorithms/allreduce.h"

#include "ops/algorithms/bruck_allreduce.h"
#include "ops/algorithms/direct_allreduce.h"
#include "ops/algorithms/halving_doubling_allreduce.h"
#include "ops/algorithms/one_shot_allreduce.h"
#include "ops/algorithms/ring_allreduce.h"

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

}  // namespace hvd

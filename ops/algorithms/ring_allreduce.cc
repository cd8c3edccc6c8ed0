#include "ops/algorithms/ring_allreduce.h"

#include "ops/algorithms/ring_pass.h"

namespace hvd {

void ring_allreduce(const SlicedReduction& work) { run_ring(work, RingSteps::all); }

}  // namespace hvd

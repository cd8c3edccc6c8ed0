#include "ops/algorithms/ring_reducescatter.h"

#include "ops/algorithms/ring_pass.h"

namespace hvd {

void ring_reducescatter(const SlicedReduction& work) { run_ring(work, RingSteps::reduce_scatter); }

}  // namespace hvd

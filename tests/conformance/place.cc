#include "tests/conformance/place.h"

#include "tests/support/run_ranks.h"

namespace hvd::testing {

void run_ranks_in_place(const RunOptions& options, const std::function<void(Runtime&)>& body) {
  if (!options.layout.gpus) return run_ranks(options, body);
  const FakeGpu gpu;
  RunOptions with_fakes = options;
  with_fakes.environment.merge(FakeGpu::environment());
  run_ranks(with_fakes, [&](Runtime& runtime) {
    place_of_this_rank() = {&gpu, runtime.topology().rank};
    body(runtime);
  });
}

}  // namespace hvd::testing

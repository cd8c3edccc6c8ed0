// HVD_GPU_THROUGH_HOST=1 when the library is loaded: TensorFlow brings GPU tensors to the host's memory.
#include <cstdlib>

#include "tests/bindings/tensorflow/job.h"
#include "tests/support/captured_stderr.h"

namespace hvd::testing {

TEST_CASE("kernels for GPUs have everything in the host's memory, and one warning says so") {
  setenv("HVD_GPU_THROUGH_HOST", "1", 1);
  const CapturedStderr log;
  const Job job;
  for (const auto& [name, op] : registry().ops) {
    INFO(name);
    const FakeKernel& kernel = registry().kernels.at({name, "GPU"});
    CHECK(kernel.on_host.size() == op.inputs.size() + op.outputs.size());
  }
  CHECK(log.text().empty());

  const FakeNode allreduce("HvdAllreduceOrdered", "GPU", reduction(HVD_SUM, 1, 2));
  FakeRun reduced(allreduce, {tensor_of<float>(tf::DataType::float32, {2}, {1, 2})});
  CHECK(reduced.run().message().empty());
  CHECK(reduced.values<float>(0) == std::vector<float>{2, 4});
  const FakeNode allgather("HvdAllgatherOrdered", "GPU", {});
  FakeRun gathered(allgather, {tensor_of<float>(tf::DataType::float32, {2}, {1, 2})});
  CHECK(gathered.run().message().empty());
  CHECK(gathered.values<float>(0) == std::vector<float>{1, 2});
  CHECK(log.count("GPU tensors go through the host's memory (HVD_GPU_THROUGH_HOST=1)") == 1);
}

}  // namespace hvd::testing

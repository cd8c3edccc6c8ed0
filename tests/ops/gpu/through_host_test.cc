// GPU tensors through the host's memory, for those who have asked for it.
#include "tests/ops/gpu/gpu_ranks.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

const Environment kWanted{{"HVD_GPU_THROUGH_HOST", "1"}, {"HVD_LOG_LEVEL", "warning"}};
const Environment kWithoutNccl{
    {"HVD_GPU_THROUGH_HOST", "1"}, {"HVD_LOG_LEVEL", "warning"}, {"HVD_NCCL_LIB", "/no/such/libnccl.so"}};

}  // namespace

TEST_CASE("what NCCL cannot do goes through the host, with one warning") {
  const FakeGpu gpu;
  gpu.cuda().inject("cuModuleLoadData", 0, 0, 222);  // nor a kernel
  const CapturedStderr log;
  REQUIRE_NOTHROW(run_gpu_ranks(
      2,
      [&](Runtime& runtime) {
        for (int step = 0; step < 5; ++step) {
          const GpuTensor tensor(gpu, runtime, {1, 2});
          CallArguments call = allreduce_of(tensor, "x");
          call.op = ReduceOp::max;
          call.prescale = 3;
          perform(runtime, call);
          require(tensor.values() == std::vector<float>{3, 6}, "through the host");
          perform(runtime, allreduce_of(tensor, "y"));
          require(tensor.values() == std::vector<float>{6, 12}, "with NCCL");
        }
      },
      kWanted));
  CHECK(log.count("go through the host's memory") == 2);  // ranks
  CHECK(log.count("it can scale sums only") == 2);
}

TEST_CASE("without NCCL every collective goes through the host") {
  const FakeGpu gpu(3, 200);
  const CapturedStderr log;
  REQUIRE_NOTHROW(run_gpu_ranks(
      3,
      [&](Runtime& runtime) {
        const int rank = runtime.topology().rank;
        FakeGpu::Stream stream(gpu, rank);
        for (int step = 0; step < 5; ++step) {
          const GpuTensor tensor(gpu, runtime, {-1, -1});
          stream.put([&] { std::fill_n(tensor.data(), 2, 1.0f); });
          perform(runtime, allreduce_of(tensor, "x", stream.handle()));
          require(tensor.values() == std::vector<float>{3, 3}, "allreduce");
          CallArguments call = allreduce_of(tensor, "y");
          call.outputs.clear();
          call.collective = Collective::allgather;
          tensor.data()[0] = static_cast<float>(rank);
          CallerReference handle = runtime.submit(call);
          require(handle->wait(deadline_after(1min)) && handle->completion.outcome().ok(), "allgather");
          const OwnedTensor& all = handle->memory.outputs.at(0);
          require(all.device == rank, "the result lies elsewhere");
          const auto* const values = static_cast<const float*>(all.data());
          require(std::vector<float>(values, values + 6) == std::vector<float>{0, 3, 1, 3, 2, 3}, "allgather");
        }
        perform(runtime, {.collective = Collective::join});
      },
      kWithoutNccl));
}

}  // namespace hvd::testing

// The kernels on tensors in a GPU's memory: what TensorFlow has put into its streams before comes before, and it goes
// on only when all is over.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/bindings/tensorflow/gpu_job.h"

namespace hvd::testing {

namespace {

using tf::Code;
using tf::DataType;
using Floats = std::vector<float>;

FakeTensor on_gpu(Dims dims) { return make_tensor(DataType::float32, std::move(dims), true); }

// As TensorFlow does: the content comes when the stream has come so far.
FakeTensor filled_in(FakeGpu::Stream& stream, Dims dims, float value) {
  FakeTensor tensor = on_gpu(std::move(dims));
  stream.put([buffer = std::weak_ptr(tensor.buffer), count = tensor.elements(), value] {
    if (const auto held = buffer.lock()) std::fill_n(static_cast<float*>(held->data), count, value);
  });
  return tensor;
}

}  // namespace

TEST_CASE("an operation begins after what was in any stream, and is over when TensorFlow hears of it") {
  const FakeGpu gpu(3, 300);
  const GpuJob job(gpu);
  FakeGpu::Stream compute(gpu, GpuJob::kDevice);
  const FakeNode allreduce("HvdAllreduceOrdered", "GPU", reduction(HVD_SUM, 1, 2));
  const FakeNode allgather("HvdAllgatherOrdered", "GPU", {});
  for (int step = 0; step < 10; ++step) {
    const auto value = static_cast<float>(step);
    FakeRun reduced(allreduce, {filled_in(compute, {3}, value), filled_in(compute, {}, value)});
    FakeRun gathered(allgather, {filled_in(compute, {2, 1}, value)});
    reduced.start();
    gathered.start();
    REQUIRE(reduced.wait());
    REQUIRE(gathered.wait());
    CHECK(reduced.message().empty());
    CHECK(reduced.values<float>(0) == Floats(3, 2 * value));
    CHECK(reduced.values<float>(1) == Floats(1, 2 * value));
    CHECK(gathered.message().empty());
    CHECK(gathered.values<float>(0) == Floats(2, value));
  }
  compute.drain();
}

TEST_CASE("an output's memory may be in use until the streams have come so far") {
  const FakeGpu gpu(5, 300);
  const GpuJob job(gpu);
  FakeGpu::Stream compute(gpu, GpuJob::kDevice);
  const FakeNode node("HvdAllreduceOrdered", "GPU", reduction(HVD_SUM, 1, 2));
  FakeTensor input = filled_in(compute, {64}, 1);
  const auto buffer = input.buffer;  // somebody reads it: so there is an output of its own
  void* output = nullptr;
  FakeRun run(node, {std::move(input)});
  set_gpu({GpuJob::kDevice, [&](std::size_t bytes) -> std::shared_ptr<void> {
             auto block = std::make_shared<FakeGpu::Block>(gpu, GpuJob::kDevice, bytes);
             output = block->data();
             compute.put([block] { std::fill_n(reinterpret_cast<float*>(block->data()), 64, -1.0f); });
             return {block, block->data()};
           }});
  CHECK(run.run().values<float>(0) == Floats(64, 2));
  CHECK(run.has_memory_of(output, 0));
  compute.drain();
}

TEST_CASE("all collectives are done on the GPU, with counts in the host's memory") {
  const FakeGpu gpu(7, 200);
  const GpuJob job(gpu);
  FakeGpu::Stream compute(gpu, GpuJob::kDevice);
  const FakeNode broadcast("HvdBroadcastOrdered", "GPU", {{"root_rank", number(0)}});
  FakeRun received(broadcast, {filled_in(compute, {2}, 4)});
  CHECK(received.run().values<float>(0) == Floats(2, 4));

  const FakeNode reducescatter("HvdReducescatterOrdered", "GPU", reduction(HVD_SUM, 1, 3));
  FakeRun rows(reducescatter, {filled_in(compute, {2, 1}, 4)});
  CHECK(rows.run().values<float>(0) == Floats(2, 12));

  const FakeNode alltoall("HvdAlltoallOrdered", "GPU", {});
  FakeRun exchanged(alltoall, {filled_in(compute, {2, 1}, 5), tensor_of<std::int64_t>(DataType::int64, {1}, {2})});
  CHECK(exchanged.run().values<float>(0) == Floats(2, 5));
  CHECK(exchanged.values<std::int32_t>(1) == std::vector<std::int32_t>{2});

  const FakeNode allgather("HvdAllgatherOrdered", "GPU", {});
  FakeRun gathered(allgather, {on_gpu({0, 3}), filled_in(compute, {1}, 6)});
  CHECK(gathered.run().message().empty());
  CHECK(gathered.dims(0) == Dims{0, 3});
  CHECK(gathered.values<float>(1) == Floats{6});

  const FakeNode join("HvdJoin", "GPU", {});
  FakeRun joined(join, {});
  CHECK(joined.run().values<std::int32_t>(0) == std::vector<std::int32_t>{0});
  const FakeNode barrier("HvdBarrier", "GPU", {}), size("HvdSize", "GPU", {});
  CHECK(FakeRun(barrier, {}).run().message().empty());
  FakeRun sized(size, {});
  CHECK(sized.run().values<std::int32_t>(0) == std::vector<std::int32_t>{1});
}

TEST_CASE("hvd's thread does not wait for the GPU") {
  const FakeGpu gpu;
  const GpuJob job(gpu);
  std::atomic<bool> may_go{false};
  FakeGpu::Stream compute(gpu, GpuJob::kDevice);
  compute.put([&] {
    while (!may_go) std::this_thread::yield();
  });
  const FakeNode node("HvdAllreduceOrdered", "GPU", reduction(HVD_SUM));
  FakeRun held_up(node, {filled_in(compute, {1}, 1)});
  held_up.start();
  const FakeNode on_cpu("HvdAllreduceOrdered", "CPU", reduction(HVD_SUM));
  FakeRun other(on_cpu, {tensor_of<float>(DataType::float32, {1}, {3})});
  CHECK(other.run().values<float>(0) == Floats{3});
  CHECK_FALSE(held_up.through());
  may_go = true;
  CHECK(held_up.wait());
  CHECK(held_up.values<float>(0) == Floats{1});
}

TEST_CASE("what the GPU or its driver cannot do is the kernel's failure") {
  const FakeGpu gpu;
  {
    const GpuJob job(gpu);
    const FakeNode allreduce("HvdAllreduceOrdered", "GPU", reduction(HVD_SUM));
    gpu.cuda().inject("cuCtxRecordEvent", GpuJob::kDevice, 0, 900);
    FakeRun run(allreduce, {on_gpu({1})});
    CHECK(run.run().code() == Code::unimplemented);
    CHECK(run.message().find("is being captured into a graph") != std::string::npos);
  }
  Environment older = FakeGpu::environment();
  older["HVD_CUDA_LIB"] = FakeGpu::older_cuda();
  const GpuJob job(gpu, older);
  const FakeNode allreduce("HvdAllreduceOrdered", "GPU", reduction(HVD_SUM));
  FakeRun run(allreduce, {on_gpu({1})});
  CHECK(run.run().code() == Code::unimplemented);
  CHECK(run.message().find("install driver 555 (CUDA 12.5) or later; or set HVD_GPU_THROUGH_HOST=1") !=
        std::string::npos);
}

TEST_CASE("an operation that fails on the GPU fails its kernel, and the thread that waits lets go") {
  const FakeGpu gpu(1, 200);
  const GpuJob job(gpu);
  const FakeNode node("HvdAllreduceOrdered", "GPU", reduction(HVD_SUM, 1, 2));
  gpu.cuda().inject("cuEventQuery", GpuJob::kDevice, 0, 700);
  FakeRun run(node, {on_gpu({4})});
  CHECK(run.run().code() != Code::ok);
  CHECK(run.message().rfind("hvd: ", 0) == 0);
}

}  // namespace hvd::testing

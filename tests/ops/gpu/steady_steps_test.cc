// What a step costs once steps repeat: calls of the driver's and of NCCL's, counted by the fakes.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/ops/gpu/gpu_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/lone_nccl.h"

namespace hvd::testing {

namespace {

constexpr int kRanks = 2, kTensors = 20, kWarmUp = 20, kSteps = 50;

// Steps of kTensors gradients whose results only the step's stream waits for. `counted` is called by rank 0 before the
// first counted step and behind the last one, while no rank does anything.
void run_steps(const FakeGpu& gpu, double prescale, const std::function<void()>& counted) {
  run_gpu_ranks(kRanks, [&](Runtime& runtime) {
    FakeGpu::Stream stream(gpu, runtime.topology().rank);
    std::vector<GpuTensor> tensors;
    for (int i = 0; i < kTensors; ++i) tensors.emplace_back(gpu, runtime, std::vector<float>(100, 1));
    CallArguments all{.name = "all"};  // no later bucket is larger
    for (const GpuTensor& tensor : tensors) all.inputs.push_back(tensor.view());
    all.outputs = all.inputs;
    all.prescale = prescale;
    perform(runtime, all);
    const auto count = [&] {
      perform(runtime, {.collective = Collective::barrier});
      if (runtime.topology().rank == 0) counted();
      perform(runtime, {.collective = Collective::barrier});
    };
    for (int step = 0; step < kWarmUp + kSteps; ++step) {
      if (step == kWarmUp) count();
      std::vector<CallerReference> handles;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        CallArguments call = allreduce_of(tensors[i], "gradient." + std::to_string(i), stream.handle());
        call.prescale = prescale;
        handles.push_back(runtime.submit(call));
      }
      for (CallerReference& handle : handles) {
        require(handle->wait_until_enqueued(Deadline::max()), "not in the stream");
        require(handle->completion.status().ok(), handle->completion.status().message());
        handle->completion.on_device->hold_up(stream.handle());
      }
      stream.drain();
    }
    count();
  });
}

}  // namespace

TEST_CASE("a step that repeats makes nothing on the GPU") {
  const FakeGpu gpu(1, 0);
  const std::vector<std::string> made{
      "cuMemAlloc",       "cuMemFree",        "cuEventDestroy",           "cuStreamCreate",
      "cuModule",         "cuMemcpy",         "ncclRedOpCreatePreMulSum", "ncclRedOpDestroy",
      "ncclCommInitRank", "ncclCommRegister",
  };
  std::map<std::string, int> before, calls;
  run_steps(gpu, 0.75, [&] {
    before = calls;
    for (const std::string& function : made) {
      calls[function] =
          function.starts_with("cu") ? gpu.cuda().calls(function.c_str()) : gpu.nccl().calls(function.c_str());
    }
  });
  for (const std::string& function : made) {
    INFO(function);
    CHECK(calls[function] == before[function]);
  }
  // As many as operations are under way at a time, which differs with the order in which threads run: in the first
  // steps.
  CHECK(gpu.cuda().calls("cuEventCreate") < 10 * kRanks * kTensors);
}

TEST_CASE("NCCL knows the buffer in which allreduces are packed, where it can") {
  const bool older = GENERATE(false, true);
  const FakeGpu gpu(1, 0);
  Environment environment;
  if (older) environment["HVD_NCCL_LIB"] = FakeGpu::older_nccl();
  run_gpu_ranks(
      kRanks,
      [&](Runtime& runtime) {
        for (const int tensors : {3, 2, 200}) {  // the last ones need a larger buffer
          std::vector<GpuTensor> all;
          for (int i = 0; i < tensors; ++i) all.emplace_back(gpu, runtime, std::vector<float>(10, 1));
          CallArguments call{.name = "group of " + std::to_string(tensors)};
          for (const GpuTensor& tensor : all) call.inputs.push_back(tensor.view());
          call.outputs = call.inputs;
          perform(runtime, call);
          for (const GpuTensor& tensor : all) require(tensor.values() == std::vector<float>(10, kRanks), "wrong sums");
        }
      },
      environment);
  CHECK(gpu.nccl().calls("ncclCommRegister") == (older ? 0 : 2 * kRanks));
  CHECK(gpu.nccl().calls("ncclCommDeregister") == (older ? 0 : 2 * kRanks));
}

TEST_CASE("a bucket waits for the last event of each stream") {
  struct Case {
    std::vector<int> streams;  // behind which of these the tensors are ready, in the order of the bucket
    bool in_order = true;      // as recorded; else in the opposite order
    int waits;
  };
  const auto [streams, in_order, waits] =
      GENERATE(Case{{0}, true, 1}, Case{{0, 0, 0, 0}, true, 1}, Case{{0, 0, 0, 0}, false, 1},
               Case{{0, 0, 1, 1}, true, 2}, Case{{0, 1, 0, 1}, true, 4});
  const FakeGpu gpu(1, 0);
  LoneNccl lone;
  FakeGpu::Stream first(gpu, 0), second(gpu, 0);
  const FakeGpu::Block block(gpu, 0, streams.size() * sizeof(float));
  std::vector<std::shared_ptr<const DeviceEvent>> ready;
  std::vector<Piece> pieces;
  for (const int stream : streams) {
    float* const tensor = reinterpret_cast<float*>(block.data()) + pieces.size();
    ready.push_back(lone.devices().record(0, (stream == 0 ? first : second).handle()));
    pieces.push_back({.input = tensor, .output = tensor, .elements = 1, .ready = ready.back().get()});
  }
  if (!in_order) std::ranges::reverse(pieces);
  const auto end = lone.allreduce(std::move(pieces));
  CHECK(gpu.cuda().calls("cuStreamWaitEvent") == waits);
  REQUIRE(end->wait(deadline_after(1min)));
}

}  // namespace hvd::testing

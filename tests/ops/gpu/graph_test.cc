// Operations that a program captures into CUDA graphs, and launches again and again without hvd.
#include <string>
#include <vector>

#include "tests/ops/gpu/gpu_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"
#include "tests/support/lone_nccl.h"

namespace hvd::testing {

namespace {

constexpr int kCapturingRanks = 2;

// Submits allreduces of all tensors, and has the stream wait for each.
void allreduce_in_stream(Runtime& runtime, const std::vector<GpuTensor>& tensors, const FakeGpu::Stream& stream,
                         double prescale = 1) {
  std::vector<CallerReference> handles;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CallArguments call = allreduce_of(tensors[i], "gradient." + std::to_string(i), stream.handle());
    call.prescale = prescale;
    handles.push_back(runtime.submit(call));
  }
  for (CallerReference& handle : handles) {
    require(handle->wait_until_enqueued(Deadline::max()), "not in the stream");
    require(handle->completion.status().ok(), handle->completion.status().message());
    static_cast<void>(handle->completion.on_device->done());  // as a caller may ask before
    handle->completion.on_device->hold_up(stream.handle());
  }
}

std::vector<GpuTensor> make_tensors(const FakeGpu& gpu, const Runtime& runtime, int count) {
  std::vector<GpuTensor> tensors;
  for (int i = 0; i < count; ++i) tensors.emplace_back(gpu, runtime, std::vector<float>(10, static_cast<float>(i + 1)));
  return tensors;
}

void require_multiples(const std::vector<GpuTensor>& tensors, float factor, const char* what) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require(tensors[i].values() == std::vector<float>(10, factor * static_cast<float>(i + 1)), what);
  }
}

}  // namespace

TEST_CASE("a captured step is done when its graph is launched, and each time") {
  const double prescale = GENERATE(1.0, 0.5);  // the second needs kernels
  const FakeGpu gpu;
  std::vector<int> calls;  // of NCCL's, as rank 0 sees them while no rank does anything
  run_gpu_ranks(kCapturingRanks, [&](Runtime& runtime) {
    FakeGpu::Stream stream(gpu, runtime.topology().rank), other(gpu, runtime.topology().rank);
    const std::vector<GpuTensor> tensors = make_tensors(gpu, runtime, 5), others = make_tensors(gpu, runtime, 3);
    allreduce_in_stream(runtime, others, other);  // the communicator exists
    other.drain();
    require_multiples(others, kCapturingRanks, "wrong sums before");
    stream.begin_capture();
    allreduce_in_stream(runtime, tensors, stream, prescale);
    const FakeGpu::Graph graph = stream.end_capture();
    require_multiples(tensors, 1, "captured operations were performed");
    const auto count = [&] {
      perform(runtime, {.collective = Collective::barrier});
      if (runtime.topology().rank == 0) calls.push_back(gpu.nccl().calls("ncclGroup"));
      perform(runtime, {.collective = Collective::barrier});
    };
    count();
    float factor = 1;
    for (int launch = 0; launch < 3; ++launch) {
      stream.put(graph);
      stream.drain();
      factor *= static_cast<float>(kCapturingRanks * prescale);
      require_multiples(tensors, factor, "wrong sums of a graph");
    }
    count();
    allreduce_in_stream(runtime, others, other);
    other.drain();
    require_multiples(others, kCapturingRanks * kCapturingRanks, "wrong sums after");
  });
  REQUIRE(calls.size() == 2);
  CHECK(calls[0] > 0);
  CHECK(calls[1] == calls[0]);
}

TEST_CASE("operations of other streams go on while a stream is captured") {
  const FakeGpu gpu;
  run_gpu_ranks(kCapturingRanks, [&](Runtime& runtime) {
    FakeGpu::Stream stream(gpu, runtime.topology().rank), other(gpu, runtime.topology().rank);
    const std::vector<GpuTensor> tensors = make_tensors(gpu, runtime, 2), others = make_tensors(gpu, runtime, 2);
    const GpuTensor larger(gpu, runtime, std::vector<float>(1000, 1));
    allreduce_in_stream(runtime, others, other);
    other.drain();
    stream.begin_capture();
    allreduce_in_stream(runtime, tensors, stream);
    CallArguments call = allreduce_of(larger, "larger", other.handle());
    call.op = ReduceOp::min;
    call.prescale = 0.5;  // packed: memory is allocated beside the capture
    perform(runtime, call);
    require(larger.values() == std::vector<float>(1000, 0.5f), "wrong minima");
    const FakeGpu::Graph graph = stream.end_capture();
    stream.put(graph);
    stream.drain();
    require_multiples(tensors, kCapturingRanks, "wrong sums of the graph");
  });
}

TEST_CASE("tensors that are reduced together are all captured, or none") {
  const FakeGpu gpu;
  LoneNccl lone;
  FakeGpu::Stream stream(gpu, 0), other(gpu, 0);
  const FakeGpu::Block block(gpu, 0, 2 * sizeof(float));
  auto* const tensors = reinterpret_cast<float*>(block.data());
  stream.begin_capture();
  const auto captured = lone.devices().record(0, stream.handle()), ready = lone.devices().record(0, other.handle());
  CHECK(captured->captured());
  CHECK_FALSE(ready->captured());
  const std::vector<Piece> both{{.input = tensors, .output = tensors, .elements = 1, .ready = captured.get()},
                                {.input = tensors + 1, .output = tensors + 1, .elements = 1, .ready = ready.get()}};
  CHECK(
      has(failure([&] { lone.allreduce(both); }), "unsupported: some tensors of this operation are ready in a stream"));
  lone.allreduce({both.front()})->hold_up(stream.handle());
  const FakeGpu::Graph graph = stream.end_capture();
}

}  // namespace hvd::testing

// The C interface with tensors on a fake GPU, as a job of one sees it. Jobs of several: tests/ops/gpu.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "include/hvd.h"
#include "tests/bindings/gpu_job.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu.h"

namespace {

using hvd::testing::FakeGpu;
using hvd::testing::GpuJob;

constexpr int kDevice = 2;
const std::int64_t kBlockShape[] = {4};

hvd_tensor tensor_of(const FakeGpu::Block& block) {
  return {.data = block.data(),
          .shape = kBlockShape,
          .dimensions = 1,
          .dtype = HVD_FLOAT32,
          .device = kDevice,
          .reserved = 0};
}

float* floats(const FakeGpu::Block& block) { return reinterpret_cast<float*>(block.data()); }

}  // namespace

TEST_CASE("a stream waits for an operation that began behind another stream") {
  const FakeGpu gpu(4, 300);
  const GpuJob job;
  FakeGpu::Stream producer(gpu, kDevice), consumer(gpu, kDevice);
  const FakeGpu::Block block(gpu, kDevice, sizeof(float) * 4);
  const hvd_tensor tensor = tensor_of(block);
  for (int step = 0; step < 10; ++step) {
    producer.put([&] { std::fill_n(floats(block), 4, static_cast<float>(step)); });
    hvd_call call = HVD_CALL_INIT;
    call.name = "x";
    call.postscale = 2;
    call.count = 1;
    call.inputs = call.outputs = &tensor;
    call.stream = producer.handle();
    hvd_work* work = nullptr;
    REQUIRE(hvd_submit(&call, &work) == HVD_OK);
    REQUIRE(hvd_work_wait_on_stream(work, consumer.handle(), -1) == HVD_OK);
    std::vector<float> seen;
    consumer.put([&] { seen.assign(floats(block), floats(block) + 4); });
    consumer.drain();
    CHECK(seen == std::vector<float>(4, 2.0f * static_cast<float>(step)));
    CHECK(hvd_work_wait(work, -1) == HVD_OK);
    CHECK(hvd_work_poll(work) == 1);
    hvd_work_free(work);
  }
}

TEST_CASE("an operation may begin behind all streams, and holds up one, not all") {
  const FakeGpu gpu(6, 300);
  const GpuJob job;
  FakeGpu::Stream first(gpu, kDevice), second(gpu, kDevice);
  const FakeGpu::Block block(gpu, kDevice, sizeof(float) * 4);
  const hvd_tensor tensor = tensor_of(block);
  for (int step = 0; step < 10; ++step) {
    FakeGpu::Stream& producer = step % 2 == 0 ? first : second;
    producer.put([&] { std::fill_n(floats(block), 4, static_cast<float>(step)); });
    hvd_call call = HVD_CALL_INIT;
    call.postscale = 2;
    call.count = 1;
    call.inputs = call.outputs = &tensor;
    call.stream = HVD_ALL_STREAMS;
    hvd_work* work = nullptr;
    REQUIRE(hvd_submit(&call, &work) == HVD_OK);
    CHECK(hvd_work_wait_on_stream(work, HVD_ALL_STREAMS, -1) == HVD_INVALID_ARGUMENT);
    CHECK(hvd_work_wait(work, -1) == HVD_OK);
    CHECK(floats(block)[3] == 2.0f * static_cast<float>(step));
    hvd_work_free(work);
  }
}

TEST_CASE("a result of unknown size lies where its input does, and is given back like any other") {
  const FakeGpu gpu;
  const GpuJob job;
  const FakeGpu::Block block(gpu, kDevice, sizeof(float) * 4);
  std::fill_n(floats(block), 4, 7.0f);
  const hvd_tensor tensor = tensor_of(block);
  hvd_call call = HVD_CALL_INIT;
  call.collective = HVD_ALLGATHER;
  call.count = 1;
  call.inputs = &tensor;
  hvd_work* work = nullptr;
  REQUIRE(hvd_run(&call, -1, &work) == HVD_OK);
  hvd_tensor result{};
  REQUIRE(hvd_work_take_output(work, 0, &result) == HVD_OK);
  hvd_work_free(work);
  CHECK(result.device == kDevice);
  CHECK(static_cast<const float*>(result.data)[3] == 7.0f);
  CHECK(gpu.cuda().live_blocks() == 2);
  hvd_free(result.data);
  CHECK(gpu.cuda().live_blocks() == 1);
}

TEST_CASE("a caller from before there were streams is understood") {
  const FakeGpu gpu;
  const GpuJob job;
  const FakeGpu::Block block(gpu, kDevice, sizeof(float) * 4);
  const hvd_tensor tensor = tensor_of(block);
  hvd_call call = HVD_CALL_INIT;
  call.struct_size = offsetof(hvd_call, stream);
  call.count = 1;
  call.inputs = call.outputs = &tensor;
  call.stream = &call;  // not to be looked at
  CHECK(hvd_run(&call, -1, nullptr) == HVD_OK);
}

TEST_CASE("the GPU libraries are described without a job") {
  const FakeGpu gpu;
  const char* text = nullptr;
  for (const auto& [name, value] : FakeGpu::environment()) setenv(name.c_str(), value.c_str(), 1);
  setenv("HVD_NCCL_LIB", "/no/such/libnccl.so", 1);
  REQUIRE(hvd_describe_gpu_libraries(&text) == HVD_OK);
  const std::string description = text;
  CHECK(description.find("CUDA driver: ok: ") == 0);
  CHECK(description.find("\nNCCL: missing: there is no NCCL: /no/such/libnccl.so") != std::string::npos);
  for (const auto& [name, value] : FakeGpu::environment()) unsetenv(name.c_str());
}

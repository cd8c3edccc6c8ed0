#include "tests/support/fake_gpu.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/base/dynamic_library.h"
#include "tests/support/built.h"

namespace hvd::testing {

namespace {

void check(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string("the fake GPU: ") + what + ": " + std::to_string(result));
}

}  // namespace

FakeGpu::FakeGpu(unsigned seed, int longest_delay_us) {
  const DynamicLibrary cuda = DynamicLibrary::open(built::fake_cuda);
  cuda_.inject = cuda.require("fake_cuda_inject");
  cuda_.reset = cuda.require("fake_cuda_reset");
  cuda_.calls = cuda.require("fake_cuda_calls");
  cuda_.launch = cuda.require("fake_cuda_launch");
  cuda_.drain = cuda.require("fake_cuda_drain");
  cuda_.use_device = cuda.require("fake_cuda_use_device");
  cuda_.live_blocks = cuda.require("fake_cuda_live_blocks");
  cuda_.live_streams = cuda.require("fake_cuda_live_streams");
  cuda_.live_modules = cuda.require("fake_cuda_live_modules");
  cuda_.live_events = cuda.require("fake_cuda_live_events");
  driver_.allocate = cuda.require("cuMemAlloc_v2");
  driver_.free = cuda.require("cuMemFree_v2");
  driver_.create_stream = cuda.require("cuStreamCreateWithPriority");
  driver_.destroy_stream = cuda.require("cuStreamDestroy_v2");
  driver_.begin_capture = cuda.require("cuStreamBeginCapture_v2");
  driver_.end_capture = cuda.require("cuStreamEndCapture");
  driver_.launch_graph = cuda.require("cuGraphLaunch");
  driver_.destroy_graph = cuda.require("cuGraphDestroy");
  const DynamicLibrary nccl = DynamicLibrary::open(built::fake_nccl);
  nccl_.inject = nccl.require("fake_nccl_inject");
  nccl_.calls = nccl.require("fake_nccl_calls");
  nccl_.reset = nccl.require("fake_nccl_reset");
  nccl_.live_communicators = nccl.require("fake_nccl_live_communicators");
  nccl_.aborted_communicators = nccl.require("fake_nccl_aborted_communicators");
  cuda_.reset(seed, longest_delay_us);
  nccl_.reset();
}

FakeGpu::~FakeGpu() {
  const int blocks = cuda_.live_blocks(), streams = cuda_.live_streams(), communicators = nccl_.live_communicators();
  const int modules = cuda_.live_modules(), events = cuda_.live_events();
  cuda_.reset(1, 50);
  nccl_.reset();
  if (blocks == 0 && streams == 0 && communicators == 0 && modules == 0 && events == 0) return;
  std::fprintf(stderr, "left on the fake GPU: %d blocks, %d streams, %d communicators, %d modules, %d events\n", blocks,
               streams, communicators, modules, events);
  std::abort();
}

Environment FakeGpu::environment() { return {{"HVD_CUDA_LIB", built::fake_cuda}, {"HVD_NCCL_LIB", built::fake_nccl}}; }

std::string FakeGpu::older_cuda() { return built::fake_cuda_older; }

std::string FakeGpu::older_nccl() { return built::fake_nccl_older; }

FakeGpu::Block::Block(const FakeGpu& gpu, int device, std::size_t bytes) : gpu_(&gpu), device_(device) {
  gpu.cuda_.use_device(device);
  unsigned long long address = 0;
  check(gpu.driver_.allocate(&address, bytes), "cuMemAlloc");
  memory_ = reinterpret_cast<std::byte*>(address);
}

FakeGpu::Block::~Block() {
  if (memory_ == nullptr) return;
  gpu_->cuda_.use_device(device_);
  gpu_->driver_.free(reinterpret_cast<unsigned long long>(memory_));
}

FakeGpu::Block::Block(Block&& other) noexcept
    : gpu_(other.gpu_), device_(other.device_), memory_(std::exchange(other.memory_, nullptr)) {}

FakeGpu::Block& FakeGpu::Block::operator=(Block&& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  return *this;
}

FakeGpu::Stream::Stream(const FakeGpu& gpu, int device) : gpu_(gpu), device_(device) {
  gpu.cuda_.use_device(device);
  check(gpu.driver_.create_stream(&handle_, 1, 0), "cuStreamCreate");
}

FakeGpu::Stream::~Stream() {
  gpu_.cuda_.use_device(device_);
  gpu_.driver_.destroy_stream(handle_);
}

void FakeGpu::Stream::put(const std::function<void()>& task) {
  gpu_.cuda_.use_device(device_);
  check(gpu_.cuda_.launch(handle_, &task), "launch");
}

void FakeGpu::Stream::begin_capture() {
  gpu_.cuda_.use_device(device_);
  check(gpu_.driver_.begin_capture(handle_, 0), "cuStreamBeginCapture");
}

FakeGpu::Graph FakeGpu::Stream::end_capture() {
  gpu_.cuda_.use_device(device_);
  void* graph = nullptr;
  check(gpu_.driver_.end_capture(handle_, &graph), "cuStreamEndCapture");
  return {graph, gpu_.driver_.destroy_graph};
}

void FakeGpu::Stream::put(const Graph& graph) {
  gpu_.cuda_.use_device(device_);
  check(gpu_.driver_.launch_graph(graph.get(), handle_), "cuGraphLaunch");
}

void FakeGpu::Stream::drain() {
  gpu_.cuda_.use_device(device_);
  check(gpu_.cuda_.drain(handle_), "drain");
}

}  // namespace hvd::testing

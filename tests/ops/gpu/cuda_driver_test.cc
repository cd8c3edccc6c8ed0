// The driver behind its table of functions, with the fake one in its place.
#include "ops/gpu/cuda_driver.h"

#include "tests/support/catch.h"
#include "tests/support/failure.h"
#include "tests/support/fake_gpu.h"

namespace hvd::cuda {

namespace {

using testing::failure;
using testing::FakeGpu;
using testing::has;

std::string fake() { return FakeGpu::environment().at("HVD_CUDA_LIB"); }

}  // namespace

TEST_CASE("a driver that is not there, or is something else, is unsupported with the reason") {
  CHECK(has(failure([] { Driver("/no/such/libcuda.so"); }), "unsupported: there is no CUDA driver: /no/such"));
  CHECK(has(failure([] { Driver("libm.so.6"); }), "unsupported: libm.so.6 has no cuInit"));
}

TEST_CASE("a driver that does not start is unsupported") {
  const FakeGpu gpu;
  gpu.cuda().inject("cuInit", -1, 0, 100);
  CHECK(has(failure([] { Driver own(fake()); }), "unsupported: the CUDA driver does not start (cuInit: 100)"));
}

TEST_CASE("the driver describes itself, and refuses devices that it does not have") {
  const FakeGpu gpu;
  Driver driver(fake());
  CHECK(has(driver.describe(), "libhvd_fake_cuda.so, CUDA 12.5, 8 devices"));
  CHECK(has(failure([&] { driver.context(8); }), "invalid argument: there is no GPU 8; this process sees 8"));
  CHECK(has(failure([&] { driver.check(700, "cuEventQuery"); }), "cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_CASE("a thread gets back the context that it had") {
  const FakeGpu gpu;
  Driver driver(fake());
  gpu.cuda().use_device(3);
  {
    const ContextScope own(driver, 5);
    Context now = nullptr;
    driver.call().contexts.current(&now);
    CHECK(now == driver.context(5));
  }
  Context now = nullptr;
  driver.call().contexts.current(&now);
  CHECK(now == driver.context(3));
}

TEST_CASE("a context that is current is not set") {
  const FakeGpu gpu;
  Driver driver(fake());
  gpu.cuda().use_device(3);
  const ContextScope outer(driver, 5);
  const int before = gpu.cuda().calls("cuCtxSetCurrent");
  { const ContextScope inner(driver, 5); }
  CHECK(gpu.cuda().calls("cuCtxSetCurrent") == before);
}

TEST_CASE("an event happens when its stream has come so far, and holds another stream up until then") {
  const FakeGpu gpu;
  std::atomic<bool> may_go{false}, over{false};
  CudaDevices devices(fake());
  FakeGpu::Stream first(gpu, 2), second(gpu, 2);
  first.put([&] {
    while (!may_go) std::this_thread::yield();
  });
  const auto event = devices.record(2, first.handle());
  CHECK_FALSE(event->happened());
  event->hold_up(second.handle());
  second.put([&] { over = true; });
  CHECK_FALSE(over);
  may_go = true;
  second.drain();
  CHECK(over);
  CHECK(event->happened());
}

TEST_CASE("an event precedes what was recorded in its stream later") {
  const FakeGpu gpu;
  CudaDevices devices(fake());
  FakeGpu::Stream one(gpu, 2), other(gpu, 2);
  const auto first = devices.record(2, one.handle()), elsewhere = devices.record(2, other.handle());
  const auto second = devices.record(2, one.handle()), of_all = devices.record(2, kAllStreams);
  CHECK(first->precedes(*second));
  CHECK_FALSE(second->precedes(*first));
  CHECK_FALSE(first->precedes(*elsewhere));
  CHECK_FALSE(first->precedes(*of_all));
  CHECK_FALSE(of_all->precedes(*devices.record(2, one.handle())));
}

TEST_CASE("an event that nobody refers to is recorded again, and who waits for it waits for what it was") {
  const FakeGpu gpu;
  std::atomic<bool> first_may_go{false}, third_may_go{false}, over{false};  // outlive the streams
  const auto hold = [](std::atomic<bool>& may_go) {
    while (!may_go) std::this_thread::yield();
  };
  CudaDevices devices(fake());
  FakeGpu::Stream first(gpu, 2), second(gpu, 2), third(gpu, 2);
  first.put([&] { hold(first_may_go); });
  devices.record(2, first.handle())->hold_up(second.handle());  // and is given back
  second.put([&] { over = true; });
  third.put([&] { hold(third_may_go); });
  const auto event = devices.record(2, third.handle());
  CHECK(gpu.cuda().calls("cuEventCreate") == 1);
  SECTION("what was recorded first happens first") {
    first_may_go = true;
    second.drain();
    CHECK(over);
    CHECK_FALSE(event->happened());
    third_may_go = true;
    third.drain();
    CHECK(event->happened());
  }
  SECTION("what was recorded first happens last") {
    third_may_go = true;
    third.drain();
    CHECK(event->happened());
    CHECK_FALSE(over);
    first_may_go = true;
    second.drain();
    CHECK(over);
    CHECK(event->happened());
  }
}

TEST_CASE("an event behind all streams happens when the last of them has come so far") {
  const FakeGpu gpu;
  std::atomic<int> may_go{0};  // outlives the streams, which end what is in them
  CudaDevices devices(fake());
  FakeGpu::Stream first(gpu, 2), second(gpu, 2), elsewhere(gpu, 3);
  const auto hold = [&](FakeGpu::Stream& stream, int until) {
    stream.put([&may_go, until] {
      while (may_go < until) std::this_thread::yield();
    });
  };
  hold(first, 1);
  hold(second, 2);
  hold(elsewhere, 3);
  const auto event = devices.record(2, kAllStreams);
  may_go = 1;
  first.drain();
  CHECK_FALSE(event->happened());
  may_go = 2;
  second.drain();
  CHECK(event->happened());
  may_go = 3;
}

TEST_CASE("what an event behind all streams needs is said") {
  const FakeGpu gpu;
  CudaDevices older(FakeGpu::older_cuda());
  CHECK(has(failure([&] { older.record(2, kAllStreams); }), "unsupported: this CUDA driver cannot order an operation"));
  CudaDevices devices(fake());
  gpu.cuda().inject("cuCtxRecordEvent", 2, 0, kCaptureUnsupported);
  CHECK(has(failure([&] { devices.record(2, kAllStreams); }), "unsupported: a stream of GPU 2 is being captured"));
}

TEST_CASE("memory of a device is given back with its last reference") {
  const FakeGpu gpu;
  CudaDevices devices(fake());
  auto memory = devices.allocate(1, 100);
  CHECK(gpu.cuda().live_blocks() == 1);
  CHECK(static_cast<std::uint8_t*>(memory.get())[99] == testing::kFreshPoison);
  memory.reset();
  CHECK(gpu.cuda().live_blocks() == 0);
  CHECK(devices.allocate(1, 0) == nullptr);
}

}  // namespace hvd::cuda

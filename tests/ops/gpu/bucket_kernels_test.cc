// The kernels' source, compiled for the fake driver: what a packed buffer holds, and what comes out of it. Numbers are
// held against ops/reduction, bit by bit.
#include "ops/gpu/bucket_kernels.h"

#include <cstring>
#include <random>

#include "core/base/error.h"
#include "ops/gpu/cuda_driver.h"
#include "ops/reduction/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"
#include "tests/support/fake_gpu.h"

namespace hvd::cuda {

namespace {

using testing::FakeGpu;

constexpr DType kDTypes[] = {DType::uint8,   DType::int8,     DType::int16,   DType::int32,  DType::int64,
                             DType::float16, DType::bfloat16, DType::float32, DType::float64};

// A fake GPU, a stream and the kernels.
struct Bench {
  FakeGpu gpu;
  CudaDevices devices{FakeGpu::environment().at("HVD_CUDA_LIB")};
  std::shared_ptr<Driver> driver = devices.driver();
  ContextScope scope{*driver, 0};
  BucketKernels kernels{driver};
  FakeGpu::Stream stream{gpu, 0};
};

template <typename T>
void fill_with_floats(std::vector<std::byte>& bytes, std::mt19937& random) {
  std::normal_distribution<T> numbers(0, 1000);
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    const T number = numbers(random);
    std::memcpy(&bytes[i], &number, sizeof number);
  }
}

// Any bits; but what becomes of a NaN with a factor is said for the 16-bit floats alone.
std::vector<std::byte> random_numbers(DType dtype, std::int64_t elements, std::mt19937& random) {
  std::vector<std::byte> bytes(bytes_of(elements, dtype));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  if (dtype == DType::float32) fill_with_floats<float>(bytes, random);
  if (dtype == DType::float64) fill_with_floats<double>(bytes, random);
  return bytes;
}

// One rank's contribution alone, multiplied by the factor.
std::vector<std::byte> scaled(DType dtype, const std::vector<std::byte>& numbers, double factor) {
  std::vector<std::byte> result(numbers.size());
  const void* const input = numbers.data();
  reduce({.dtype = dtype, .op = ReduceOp::sum, .prescale = factor}, dtype, {&input, 1}, dtype, result.data(),
         numbers.size() / size_of(dtype));
  return result;
}

}  // namespace

TEST_CASE("tensors go into a packed buffer and come out of it, scaled as on the CPU") {
  const DType dtype = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
  const double factor = GENERATE(1.0, 0.3, 1.0 / 49, -2.5, 1e6);
  INFO(dtype_name(dtype) << " by " << factor);
  Bench bench;
  std::mt19937 random(7);
  const std::vector<std::int64_t> elements = {1, 16, 257, 5000};
  std::vector<std::vector<std::byte>> numbers;
  std::vector<FakeGpu::Block> inputs, outputs;
  std::vector<BucketPiece> in, out;
  std::int64_t offset = 0;
  for (const std::int64_t count : elements) {
    numbers.push_back(random_numbers(dtype, count, random));
    inputs.emplace_back(bench.gpu, 0, numbers.back().size());
    outputs.emplace_back(bench.gpu, 0, numbers.back().size());
    std::memcpy(inputs.back().data(), numbers.back().data(), numbers.back().size());
    in.push_back({inputs.back().data(), count, offset});
    out.push_back({outputs.back().data(), count, offset});
    offset += count + 3;
  }
  const FakeGpu::Block packed(bench.gpu, 0, static_cast<std::size_t>(offset) * packed_size_of(dtype));
  bench.kernels.pack(dtype, in, packed.data(), factor, static_cast<Stream>(bench.stream.handle()));
  bench.kernels.unpack(dtype, out, packed.data(), 1.0, static_cast<Stream>(bench.stream.handle()));
  bench.stream.drain();
  const auto check = [&] {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::vector<std::byte> expected = scaled(dtype, numbers[i], factor);
      CHECK(std::memcmp(outputs[i].data(), expected.data(), expected.size()) == 0);
    }
  };
  check();
  bench.kernels.pack(dtype, in, packed.data(), 1.0, static_cast<Stream>(bench.stream.handle()));
  bench.kernels.unpack(dtype, out, packed.data(), factor, static_cast<Stream>(bench.stream.handle()));
  bench.stream.drain();
  check();
}

TEST_CASE("more tensors than one launch takes, aligned or not") {
  Bench bench;
  constexpr int kTensors = 300, kBytes = 40;
  const FakeGpu::Block memory(bench.gpu, 0, kTensors * kBytes), packed(bench.gpu, 0, kTensors * 64);
  std::vector<BucketPiece> pieces;
  std::vector<std::byte> before(kTensors * kBytes);
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = static_cast<std::byte>(i * 7);
  std::memcpy(memory.data(), before.data(), before.size());
  for (int i = 0; i < kTensors; ++i) pieces.push_back({memory.data() + i * kBytes, 33, i * 64});
  bench.kernels.pack(DType::uint8, pieces, packed.data(), 1.0, static_cast<Stream>(bench.stream.handle()));
  bench.stream.drain();
  std::memset(memory.data(), 0, before.size());
  bench.kernels.unpack(DType::uint8, pieces, packed.data(), 1.0, static_cast<Stream>(bench.stream.handle()));
  bench.stream.drain();
  for (int i = 0; i < kTensors * kBytes; ++i) {
    const std::byte expected = i % kBytes < 33 ? before[static_cast<std::size_t>(i)] : std::byte{0};
    REQUIRE(memory.data()[i] == expected);
  }
}

TEST_CASE("a driver that does not take the kernels says so") {
  const FakeGpu gpu;
  CudaDevices devices{FakeGpu::environment().at("HVD_CUDA_LIB")};
  const auto driver = devices.driver();
  const ContextScope scope(*driver, 0);
  gpu.cuda().inject("cuModuleLoadData", 0, 0, 222);
  const std::string text = testing::failure([&] { const BucketKernels kernels(driver); });
  CHECK(testing::has(text, "cuModuleLoadData"));
}

}  // namespace hvd::cuda

// What ranks conclude from what they tell one another before they make a communicator; the factors that NCCL gets.
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/gpu/nccl_backend.h"
#include "tests/ops/gpu/gpu_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"

namespace hvd::nccl {

namespace {

using testing::has;

NcclRankInfo with(int version, const std::string& text) {
  NcclRankInfo info;
  info.version = version;
  info.set_text(text);
  return info;
}

std::string describe(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

TEST_CASE("ranks with the same NCCL make a communicator, wherever it lies") {
  CHECK(check_compatible({with(22703, "NCCL 2.27.3, a"), with(22703, "NCCL 2.27.3, b")}, describe).ok());
}

TEST_CASE("a rank without NCCL is named with what it lacks") {
  const Status status =
      check_compatible({with(22703, "NCCL 2.27.3"), with(0, "there is no NCCL: libnccl.so.2: gone")}, describe);
  CHECK(status.code() == StatusCode::unsupported);
  CHECK(has(status.message(), "on rank 1 there is no NCCL: libnccl.so.2: gone. Install NCCL"));
}

TEST_CASE("ranks with different versions are named with them") {
  const Status status = check_compatible({with(22703, "NCCL 2.27.3, a"), with(21805, "NCCL 2.18.5, b")}, describe);
  CHECK(status.code() == StatusCode::mismatch);
  CHECK(has(status.message(), "rank 0 has NCCL 2.27.3, a and rank 1 has NCCL 2.18.5, b: HVD_NCCL_LIB names one"));
}

TEST_CASE("a text without an end has one") {
  NcclRankInfo info;
  std::memset(info.text, 'x', sizeof info.text);
  CHECK(info.text_string() == std::string(sizeof info.text, 'x'));
  info.set_text(std::string(10'000, 'y'));
  CHECK(info.text_string() == std::string(sizeof info.text - 1, 'y'));
}

TEST_CASE("the time of an operation counts from when it was seen to have begun") {
  const TimePoint start{};
  Watchdog watchdog(10s);
  CHECK_FALSE(watchdog.expired(start, 1, false));
  CHECK_FALSE(watchdog.expired(start + 100s, 1, false));
  CHECK_FALSE(watchdog.expired(start + 101s, 1, true));
  CHECK_FALSE(watchdog.expired(start + 110s, 1, true));
  CHECK(watchdog.expired(start + 111s, 1, true));
}

TEST_CASE("each operation has time of its own") {
  const TimePoint start{};
  Watchdog watchdog(10s);
  CHECK_FALSE(watchdog.expired(start, 1, true));
  CHECK_FALSE(watchdog.expired(start + 9s, 2, true));
  CHECK_FALSE(watchdog.expired(start + 18s, 2, true));
  CHECK_FALSE(watchdog.expired(start + 18s, 3, false));
  CHECK_FALSE(watchdog.expired(start + 100s, 3, true));
}

// Sanitizers see a conversion to an integer, which would be undefined.
TEST_CASE("NCCL scales floats by a factor that no integer can hold") {
  const testing::FakeGpu gpu;
  testing::run_gpu_ranks(2, [&](Runtime& runtime) {
    const testing::GpuTensor tensor(gpu, runtime, {1, -2});
    testing::CallArguments call = testing::allreduce_of(tensor, "x");
    call.prescale = 1e30;
    testing::perform(runtime, call);
    testing::require(tensor.values() == std::vector<float>{2 * 1e30F, -4 * 1e30F}, "wrong sums");
  });
}

TEST_CASE("NCCL gets a factor in the type of the tensor") {
  struct Factor {
    DType dtype;
    double factor;
    std::array<std::uint16_t, 4> one, result;  // the bytes of a number, and of twice the number times the factor
  };
  const std::vector<Factor> factors = {
      {DType::int8, 3, {5}, {30}},
      {DType::uint8, 3, {5}, {30}},
      {DType::int32, 3, {5}, {30}},
      {DType::int64, 3, {5}, {30}},
      {DType::float16, 1.5, {0x3c00}, {0x4200}},
      {DType::bfloat16, 0.75, {0x3f80}, {0x3fc0}},
      {DType::float32, 1.5, {0, 0x3f80}, {0, 0x4040}},
      {DType::float64, 1.5, {0, 0, 0, 0x3ff0}, {0, 0, 0, 0x4008}},
  };
  const testing::FakeGpu gpu;
  testing::run_gpu_ranks(2, [&](Runtime& runtime) {
    for (const Factor& row : factors) {
      const testing::GpuTensor tensor(gpu, runtime, {0, 0});
      std::memcpy(tensor.data(), row.one.data(), sizeof row.one);
      testing::CallArguments call = testing::allreduce_of(tensor, dtype_name(row.dtype));
      call.inputs.front().dtype = call.outputs.front().dtype = row.dtype;
      call.inputs.front().shape = call.outputs.front().shape = {1};
      call.prescale = row.factor;
      testing::perform(runtime, call);
      testing::require(std::memcmp(tensor.data(), row.result.data(), sizeof row.result) == 0, dtype_name(row.dtype));
    }
  });
}

}  // namespace hvd::nccl

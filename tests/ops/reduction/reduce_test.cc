// What reduce() promises in words, by examples. kernels_test.cc has every case.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "ops/reduction/half.h"
#include "ops/reduction/reduce.h"
#include "tests/ops/reduction/inputs.h"
#include "tests/support/catch.h"

namespace hvd {

namespace {

TEST_CASE("reduce: 16-bit floats through accumulators are rounded once") {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    const Inputs inputs = mixed_inputs(dtype, 6, 1300, 3);
    const Reduction whole{.dtype = dtype, .op = ReduceOp::sum, .prescale = 0.7, .postscale = 1.0 / 6};
    std::vector<float> accumulators(1300);
    Buffer direct(2600), rounded(2600);
    reduce(whole, dtype, inputs.pointers(), dtype, direct.data(), 1300);
    reduce({.dtype = dtype, .prescale = 0.7}, dtype, inputs.pointers(), DType::float32, accumulators.data(), 1300);
    const void* const one[] = {accumulators.data()};
    reduce({.dtype = dtype, .postscale = 1.0 / 6}, DType::float32, one, dtype, rounded.data(), 1300);
    CHECK(direct == rounded);
  }
}

TEST_CASE("reduce: 16-bit sums do not lose what a 16-bit accumulator would") {
  const auto one = float_to_half(1.0f), large = float_to_half(2048.0f);  // 2048 + 1 is not a float16
  const void* const inputs[] = {&large, &one, &one, &one, &one};
  std::uint16_t out = 0;
  reduce({.dtype = DType::float16}, DType::float16, inputs, DType::float16, &out, 1);
  CHECK(half_to_float(out) == 2052.0f);
}

TEST_CASE("reduce: a NaN wins min and max wherever it stands") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    for (std::size_t at = 0; at < 5; ++at) {
      std::vector<std::vector<float>> values(5, std::vector<float>(37, 1.0f));
      values[at].assign(37, nan);
      std::vector<const void*> inputs;
      for (const auto& value : values) inputs.push_back(value.data());
      std::vector<float> out(37);
      reduce({.dtype = DType::float32, .op = op}, DType::float32, inputs, DType::float32, out.data(), out.size());
      for (const float value : out) REQUIRE(std::isnan(value));
    }
  }
}

TEST_CASE("reduce: scaled integers are truncated toward zero and saturate") {
  struct Case {
    std::int32_t value;
    double factor;
    std::int32_t expected;
  };
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max(), kMin = -kMax - 1;
  for (const Case& c : {Case{7, 0.5, 3}, Case{-7, 0.5, -3}, Case{kMax, 2.0, kMax}, Case{kMin, 2.0, kMin},
                        Case{kMin, 1e300, kMin}, Case{kMax, -1e300, kMin}, Case{0, HUGE_VAL, 0}, Case{3, 1.0 / 3, 1}}) {
    const void* const inputs[] = {&c.value};
    std::int32_t out = -1;
    reduce({.dtype = DType::int32, .postscale = c.factor}, DType::int32, inputs, DType::int32, &out, 1);
    CHECK(out == c.expected);
  }
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  const void* const inputs[] = {&large};
  std::int64_t out = 0;
  reduce({.dtype = DType::int64, .prescale = 1.5}, DType::int64, inputs, DType::int64, &out, 1);
  CHECK(out == large);
}

TEST_CASE("reduce: an average of float32 is rounded as a quotient is, for any number of ranks") {
  const Inputs inputs = ordinary_inputs(DType::float32, 1, 1000, 3);
  std::vector<float> sums(1000), averages(1000);
  std::memcpy(sums.data(), inputs.pointers()[0], 4000);
  for (int ranks = 1; ranks <= 1024; ++ranks) {
    sums[0] = static_cast<float>(ranks);
    const void* const one[] = {sums.data()};
    reduce({.dtype = DType::float32, .postscale = 1.0 / ranks}, DType::float32, one, DType::float32, averages.data(),
           1000);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float quotient = sums[i] / static_cast<float>(ranks);
      if (averages[i] != quotient) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(averages[0] == 1.0f);
  }
}

TEST_CASE("reduce: an average of equal integers is that integer, for any number of ranks") {
  for (int ranks = 1; ranks <= 1024; ++ranks) {
    const std::int32_t sums[] = {ranks, -ranks, 7 * ranks, 0};
    std::int32_t averages[4] = {};
    const void* const inputs[] = {sums};
    reduce({.dtype = DType::int32, .postscale = 1.0 / ranks}, DType::int32, inputs, DType::int32, averages, 4);
    CAPTURE(ranks);
    CHECK(averages[0] == 1);
    CHECK(averages[1] == -1);
    CHECK(averages[2] == 7);
    CHECK(averages[3] == 0);
  }
}

TEST_CASE("reduce: there is one NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  struct Case {
    ReduceOp op;
    float a, b;
  };
  for (const Case& c : {Case{ReduceOp::sum, infinity, -infinity}, Case{ReduceOp::product, 0.0f, -infinity},
                        Case{ReduceOp::sum, std::bit_cast<float>(0xff812345u), 1.0f},
                        Case{ReduceOp::min, 1.0f, std::bit_cast<float>(0x7fc54321u)}}) {
    const void* const inputs[] = {&c.a, &c.b};
    std::uint32_t out = 0;
    reduce({.dtype = DType::float32, .op = c.op}, DType::float32, inputs, DType::float32, &out, 1);
    CHECK(out == 0x7fc00000u);
  }
}

TEST_CASE("reduce: the identity changes nothing") {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kOps) {
      if (!reduction_exists(dtype, op)) continue;
      const Inputs inputs = ordinary_inputs(dtype, 1, 100, 11);
      const void* const values = inputs.pointers()[0];
      Buffer identity(100 * size_of(dtype)), out(100 * size_of(dtype));
      fill_identity(dtype, op, identity.data(), 100);
      INFO(dtype_name(dtype) << " " << reduce_op_name(op));
      for (const auto& order :
           {std::vector<const void*>{values, identity.data()}, std::vector<const void*>{identity.data(), values}}) {
        reduce({.dtype = dtype, .op = op}, dtype, order, dtype, out.data(), 100);
        CHECK(std::memcmp(out.data(), values, out.size()) == 0);
      }
    }
  }
}

TEST_CASE("reduce: what does not exist is refused") {
  CHECK_THROWS_AS(check_reduction(DType::float32, ReduceOp::average), Unsupported);
  CHECK_THROWS_AS(check_reduction(DType::int8, ReduceOp::adasum), Unsupported);
  CHECK_THROWS_AS(check_reduction(DType::boolean, ReduceOp::sum), Unsupported);
  CHECK_THROWS_AS(check_reduction(DType::boolean, ReduceOp::product), Unsupported);
  CHECK_NOTHROW(check_reduction(DType::boolean, ReduceOp::min));
  CHECK_NOTHROW(check_reduction(DType::bfloat16, ReduceOp::product));
}

constexpr InstructionSet kAll[] = {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512,
                                   InstructionSet::neon};

bool is_available(InstructionSet set) {
  const auto sets = available_instruction_sets();
  return std::find(sets.begin(), sets.end(), set) != sets.end();
}

TEST_CASE("instruction sets: those that are there can be asked for, the others are refused") {
  CHECK(is_available(InstructionSet::scalar));
  CHECK(instruction_set_from("auto") == InstructionSet::automatic);
  for (const InstructionSet set : kAll) {
    const std::string name = instruction_set_name(set);
    const float value = 1.5f;
    float out = 0;
    const void* const inputs[] = {&value, &value};
    const Reduction reduction{.instruction_set = set};
    INFO(name);
    if (is_available(set)) {
      CHECK(instruction_set_from(name) == set);
      reduce(reduction, DType::float32, inputs, DType::float32, &out, 1);
      CHECK(out == 3.0f);
    } else {
      CHECK_THROWS_AS(instruction_set_from(name), InvalidArgument);
      CHECK_THROWS_AS(reduce(reduction, DType::float32, inputs, DType::float32, &out, 1), Internal);
      CHECK(out == 0.0f);
    }
  }
}

TEST_CASE("instruction sets: who asks for what is not there hears what is") {
  for (const char* name : {"", "avx9", "AVX2", "scalar,avx2"}) {
    try {
      instruction_set_from(name);
      FAIL(std::string("'") + name + "' was taken for an instruction set");
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      CHECK(text.starts_with(std::string("HVD_INSTRUCTION_SET='") + name + "'"));
      for (const InstructionSet set : available_instruction_sets()) {
        CHECK(text.find(instruction_set_name(set)) != std::string::npos);
      }
    }
  }
}

TEST_CASE("instruction sets: no processor has both AVX and NEON") {
  CHECK_FALSE((is_available(InstructionSet::neon) && is_available(InstructionSet::avx2)));
}

}  // namespace

}  // namespace hvd

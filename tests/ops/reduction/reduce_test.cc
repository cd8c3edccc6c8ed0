// reduce() against a plain loop over one element at a time, bit by bit.
#include "ops/reduction/reduce.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "ops/reduction/half.h"
#include "ops/reduction/kernels.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product};

std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kDTypeCount; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

bool exists(DType dtype, ReduceOp op) { return dtype != DType::boolean || op == ReduceOp::min || op == ReduceOp::max; }

// How an element type is carried: T in memory, A while reducing.
template <typename T>
struct Plain {
  using Memory = T;
  using Accumulator = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
struct Half {
  using Memory = std::uint16_t;
  using Accumulator = float;
  static float widen(std::uint16_t value) { return half_to_float(value); }
  static std::uint16_t narrow(float value) { return float_to_half(value); }
};
struct Bfloat16 {
  using Memory = std::uint16_t;
  using Accumulator = float;
  static float widen(std::uint16_t value) { return bfloat16_to_float(value); }
  static std::uint16_t narrow(float value) { return float_to_bfloat16(value); }
};

template <typename A>
A reference_scale(A value, double factor, bool sixteen_bit) {
  if (factor == 1.0) return value;
  if constexpr (std::is_floating_point_v<A>) {
    if (sixteen_bit) return value * static_cast<float>(factor);
    return static_cast<A>(static_cast<double>(value) * factor);
  } else {
    const double divisor = std::round(1.0 / factor);
    const bool divides = divisor != 0.0 && 1.0 / divisor == factor;
    const double wide = static_cast<double>(value);
    const double product = std::trunc(divides ? wide / divisor : wide * factor);
    if (product >= static_cast<double>(std::numeric_limits<A>::max())) return std::numeric_limits<A>::max();
    if (product <= static_cast<double>(std::numeric_limits<A>::min())) return std::numeric_limits<A>::min();
    return static_cast<A>(product);
  }
}

template <typename A>
A reference_op(ReduceOp op, A a, A b) {
  if (op == ReduceOp::min || op == ReduceOp::max) {
    if (a != a) return a;
    if (b != b) return b;
    return (op == ReduceOp::min) == (a < b) ? a : b;
  }
  if constexpr (std::is_floating_point_v<A>) {
    return op == ReduceOp::sum ? a + b : a * b;
  } else {
    __extension__ using Wide = unsigned __int128;
    const auto x = static_cast<Wide>(a), y = static_cast<Wide>(b);
    return static_cast<A>(static_cast<std::uint64_t>(op == ReduceOp::sum ? x + y : x * y));
  }
}

using Buffer = std::vector<std::byte>;

template <typename Type>
Buffer reference_of(const Reduction& reduction, const std::vector<const void*>& inputs, std::size_t elements) {
  using Memory = typename Type::Memory;
  using A = typename Type::Accumulator;
  const bool sixteen_bit = !std::is_same_v<Memory, A>;
  const bool scaled = reduction.dtype != DType::boolean;
  Buffer result(elements * sizeof(Memory));
  for (std::size_t i = 0; i < elements; ++i) {
    A folded{};
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      Memory raw;
      std::memcpy(&raw, static_cast<const std::byte*>(inputs[k]) + i * sizeof raw, sizeof raw);
      const A value = reference_scale(static_cast<A>(Type::widen(raw)), scaled ? reduction.prescale : 1.0, sixteen_bit);
      folded = k == 0 ? value : reference_op(reduction.op, folded, value);
    }
    const Memory rounded = Type::narrow(reference_scale(folded, scaled ? reduction.postscale : 1.0, sixteen_bit));
    std::memcpy(result.data() + i * sizeof rounded, &rounded, sizeof rounded);
  }
  return result;
}

Buffer reference(const Reduction& reduction, const std::vector<const void*>& inputs, std::size_t elements) {
  switch (reduction.dtype) {
    case DType::boolean:
    case DType::uint8: return reference_of<Plain<std::uint8_t>>(reduction, inputs, elements);
    case DType::int8: return reference_of<Plain<std::int8_t>>(reduction, inputs, elements);
    case DType::int16: return reference_of<Plain<std::int16_t>>(reduction, inputs, elements);
    case DType::int32: return reference_of<Plain<std::int32_t>>(reduction, inputs, elements);
    case DType::int64: return reference_of<Plain<std::int64_t>>(reduction, inputs, elements);
    case DType::float16: return reference_of<Half>(reduction, inputs, elements);
    case DType::bfloat16: return reference_of<Bfloat16>(reduction, inputs, elements);
    case DType::float32: return reference_of<Plain<float>>(reduction, inputs, elements);
    case DType::float64: return reference_of<Plain<double>>(reduction, inputs, elements);
  }
  return {};
}

// Values of all kinds: whole random bit patterns for integers, ordinary numbers for floats.
void fill_random(DType dtype, std::mt19937_64& random, void* out, std::size_t elements) {
  auto* bytes = static_cast<std::byte*>(out);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < elements; ++i) {
    const float number = normal(random);
    const double wide = number;
    std::uint64_t bits = random();
    if (dtype == DType::boolean) bits &= 1;
    if (dtype == DType::float16) bits = float_to_half(number);
    if (dtype == DType::bfloat16) bits = float_to_bfloat16(number);
    if (dtype == DType::float32) std::memcpy(&bits, &number, sizeof number);
    if (dtype == DType::float64) std::memcpy(&bits, &wide, sizeof wide);
    std::memcpy(bytes + i * size_of(dtype), &bits, size_of(dtype));
  }
}

// Inputs that start one element after an aligned address.
struct Inputs {
  Inputs(DType dtype, std::size_t count, std::size_t elements, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t k = 0; k < count; ++k) {
      memory.emplace_back((elements + 1) * size_of(dtype));
      std::byte* start = memory.back().data() + (k % 2) * size_of(dtype);
      fill_random(dtype, random, start, elements);
      pointers.push_back(start);
    }
  }
  std::vector<Buffer> memory;
  std::vector<const void*> pointers;
};

struct Scales {
  double before, after;
};

TEST_CASE("reduce: every type, operation, number of inputs, size and scale") {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kOps) {
      if (!exists(dtype, op)) continue;
      for (const std::size_t count : {1u, 2u, 3u, 4u, 5u, 8u, 16u}) {
        for (const std::size_t elements : {0u, 1u, 3u, 1000u, 4097u}) {
          const Inputs inputs(dtype, count, elements, 7 * count + elements);
          for (const Scales scales : {Scales{1, 1}, Scales{0.3, 1}, Scales{1, 1.0 / 3}, Scales{0.5, 2.7}}) {
            const Reduction reduction{.dtype = dtype, .op = op, .prescale = scales.before, .postscale = scales.after};
            Buffer out((elements + 2) * size_of(dtype), std::byte{0x5a});
            Buffer expected = out;
            reduce(reduction, dtype, inputs.pointers, dtype, out.data() + size_of(dtype), elements);
            const Buffer values = reference(reduction, inputs.pointers, elements);
            if (!values.empty()) std::memcpy(expected.data() + size_of(dtype), values.data(), values.size());
            const bool same = out == expected;
            INFO(dtype_name(dtype) << " " << reduce_op_name(op) << " of " << count << " inputs, " << elements
                                   << " elements, scaled by " << scales.before << " and " << scales.after);
            REQUIRE(same);
          }
        }
      }
    }
  }
}

TEST_CASE("reduce: the output may be any one of the inputs") {
  for (const DType dtype : {DType::float32, DType::float16, DType::int8}) {
    for (const std::size_t count : {1u, 2u, 3u, 5u, 9u}) {
      for (std::size_t alias = 0; alias < count; ++alias) {
        for (const double scale : {1.0, 0.5}) {
          Inputs inputs(dtype, count, 1500, count);
          const Reduction reduction{.dtype = dtype, .op = ReduceOp::sum, .postscale = scale};
          const Buffer expected = reference(reduction, inputs.pointers, 1500);
          void* out = inputs.memory[alias].data() + (alias % 2) * size_of(dtype);
          reduce(reduction, dtype, inputs.pointers, dtype, out, 1500);
          INFO(dtype_name(dtype) << ", output is input " << alias << " of " << count);
          REQUIRE(std::memcmp(out, expected.data(), expected.size()) == 0);
        }
      }
    }
  }
}

TEST_CASE("reduce: 16-bit floats through accumulators are rounded once") {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    const Inputs inputs(dtype, 6, 1300, 3);
    const Reduction whole{.dtype = dtype, .op = ReduceOp::sum, .prescale = 0.7, .postscale = 1.0 / 6};
    std::vector<float> accumulators(1300);
    Buffer direct(2600), rounded(2600);
    reduce(whole, dtype, inputs.pointers, dtype, direct.data(), 1300);
    reduce({.dtype = dtype, .prescale = 0.7}, dtype, inputs.pointers, DType::float32, accumulators.data(), 1300);
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

TEST_CASE("reduce: the identity changes nothing") {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kOps) {
      if (!exists(dtype, op)) continue;
      const Inputs inputs(dtype, 1, 100, 11);
      Buffer identity(100 * size_of(dtype)), out(100 * size_of(dtype));
      fill_identity(dtype, op, identity.data(), 100);
      INFO(dtype_name(dtype) << " " << reduce_op_name(op));
      for (const auto& order : {std::vector<const void*>{inputs.pointers[0], identity.data()},
                                std::vector<const void*>{identity.data(), inputs.pointers[0]}}) {
        reduce({.dtype = dtype, .op = op}, dtype, order, dtype, out.data(), 100);
        CHECK(std::memcmp(out.data(), inputs.pointers[0], out.size()) == 0);
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

#if HVD_KERNELS_AVX2
TEST_CASE("reduce: every instruction set computes the same bits") {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) return;
  constexpr std::size_t kElements = 0x10000;
  std::mt19937_64 random(5);
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    std::vector<std::uint16_t> every(kElements);
    std::vector<std::uint32_t> patterns(kElements);  // floats of every kind, NaN included
    for (std::size_t i = 0; i < kElements; ++i) {
      every[i] = static_cast<std::uint16_t>(i);
      patterns[i] = static_cast<std::uint32_t>(random());
    }
    std::vector<std::uint32_t> wide[2] = {patterns, patterns};
    std::vector<std::uint16_t> narrow[2] = {every, every};
    int which = 0;
    for (const Kernels* kernels : {&kKernelsBaseline, &kKernelsAvx2}) {
      kernels->widen(dtype)(wide[which].data(), every.data(), kElements);
      kernels->narrow(dtype)(narrow[which].data(), patterns.data(), kElements);
      ++which;
    }
    CHECK(wide[0] == wide[1]);
    CHECK(narrow[0] == narrow[1]);
  }
  for (const DType dtype : {DType::float32, DType::float64, DType::int64, DType::int8}) {
    const Inputs inputs(dtype, 4, 1003, 9);
    for (const ReduceOp op : kOps) {
      Buffer out[2] = {Buffer(1003 * size_of(dtype)), Buffer(1003 * size_of(dtype))};
      kKernelsBaseline.fold(dtype, op)(out[0].data(), inputs.pointers.data(), 4, 1003);
      kKernelsAvx2.fold(dtype, op)(out[1].data(), inputs.pointers.data(), 4, 1003);
      CHECK(out[0] == out[1]);
    }
  }
}
#endif

}  // namespace
}  // namespace hvd

// The 16-bit floats through every instruction set's conversions: every value, and both sides of every boundary between
// two of them.
#include <bit>
#include <cmath>
#include <limits>

#include "tests/ops/reduction/inputs.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

constexpr std::size_t kPatterns = 0x10000;

struct Type {
  DType dtype;
  const HalfFormat& format;
};
constexpr Type kTypes[] = {{DType::float16, kFloat16}, {DType::bfloat16, kBfloat16}};

// All patterns, input k turned by k * step, so that each meets others.
Inputs every_pattern(DType dtype, std::size_t count, std::size_t step) {
  Inputs inputs(dtype, count, kPatterns);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < kPatterns; ++i) inputs.set(k, i, (i + k * step) % kPatterns);
  }
  return inputs;
}

// Each value, what lies half way to the next, and the float32 next to both on either side.
Inputs every_boundary(const HalfFormat& format) {
  Inputs inputs(DType::float32, 1, 6 * kPatterns);
  const float infinity = std::numeric_limits<float>::infinity();
  std::size_t next = 0;
  for (std::size_t bits = 0; bits < kPatterns; ++bits) {
    const double value = format.value_of(static_cast<std::uint16_t>(bits));
    // Beyond the greatest comes, for rounding, what would be next if exponents went on.
    const double after = (bits & 0x7fff) + 1 < format.infinity()
                             ? format.value_of(static_cast<std::uint16_t>(bits + 1))
                             : std::copysign(std::ldexp(1.0, format.bias + 1), value);
    for (const float base : {static_cast<float>(value), static_cast<float>((value + after) / 2)}) {
      for (const float number : {base, std::nextafterf(base, infinity), std::nextafterf(base, -infinity)}) {
        inputs.set(0, next++, std::bit_cast<std::uint32_t>(number));
      }
    }
  }
  return inputs;
}

TEST_CASE("conversions: every 16-bit float widens to its value") {
  for (const Type& type : kTypes) {
    check_all_sets({.dtype = type.dtype}, type.dtype, every_pattern(type.dtype, 1, 0), DType::float32, {kPatterns});
  }
}

TEST_CASE("conversions: to the nearest, and in the middle to the even one") {
  for (const Type& type : kTypes) {
    const Inputs inputs = every_boundary(type.format);
    check_all_sets({.dtype = type.dtype}, DType::float32, inputs, type.dtype, {inputs.elements()});
  }
}

TEST_CASE("conversions: every 16-bit float comes back through a register") {
  for (const Type& type : kTypes) {
    // Twice the least of two equals.
    check_all_sets({.dtype = type.dtype, .op = ReduceOp::min}, every_pattern(type.dtype, 2, 0));
    check_all_sets({.dtype = type.dtype, .postscale = 0.5}, every_pattern(type.dtype, 2, 0));
  }
}

TEST_CASE("conversions: sums and products of every 16-bit float with others") {
  for (const Type& type : kTypes) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product}) {
      for (const std::size_t step : {1u, 0x80u, 0x1234u, 0x7f81u, 0x8000u}) {
        check_all_sets({.dtype = type.dtype, .op = op}, every_pattern(type.dtype, 3, step));
      }
    }
  }
}

}  // namespace
}  // namespace hvd

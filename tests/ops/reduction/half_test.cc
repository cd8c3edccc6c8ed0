// The 16-bit float formats against their definition: every one of the 65,536 values, and every rounding boundary.
#include "ops/reduction/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/ops/reduction/wide_reference.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

struct Format {
  const char* name;
  HalfFormat definition;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};

const Format kFormats[] = {
    {"float16", kFloat16, [](std::uint16_t h) { return half_to_float(h); }, [](float f) { return float_to_half(f); }},
    {"bfloat16", kBfloat16, [](std::uint16_t h) { return bfloat16_to_float(h); },
     [](float f) { return float_to_bfloat16(f); }},
};

TEST_CASE("16-bit floats: every value widens to what its bits say and comes back") {
  for (const Format& format : kFormats) {
    INFO(format.name);
    int wrong = 0;
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const double expected = format.definition.value_of(half);
      const float wide = format.widen(half);
      if (std::isnan(expected)) {
        wrong += std::bit_cast<std::uint32_t>(wide) != 0x7fc00000u || format.narrow(wide) != format.definition.nan();
      } else {
        wrong += static_cast<double>(wide) != expected || std::signbit(wide) != (bits >= 0x8000u);
        wrong += format.narrow(wide) != half;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("16-bit floats: between two neighbours the nearer one, in the middle the even one") {
  for (const Format& format : kFormats) {
    INFO(format.name);
    int wrong = 0;
    for (std::uint16_t low = 0; low + 1 < format.definition.infinity(); ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double middle = (format.definition.value_of(low) + format.definition.value_of(high)) / 2;
      const auto exact = static_cast<float>(middle);       // one bit more than the 16-bit format: a float32 holds it
      if (static_cast<double>(exact) != middle) continue;  // the smallest bfloat16 lie beyond float32
      const std::uint16_t even = low % 2 == 0 ? low : high;
      wrong += format.narrow(exact) != even;
      wrong += format.narrow(-exact) != (even | 0x8000);
      wrong += format.narrow(std::nextafterf(exact, 0.0f)) != low;
      wrong += format.narrow(std::nextafterf(exact, std::numeric_limits<float>::infinity())) != high;
      wrong += format.definition.nearest(middle) != even;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("16-bit floats: too large becomes infinity, every NaN the one NaN") {
  CHECK(float_to_half(65519.996f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(-1e9f) == 0xfc00);
  CHECK(float_to_half(0x1p-26f) == 0);
  CHECK(float_to_bfloat16(std::numeric_limits<float>::max()) == 0x7f80);
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const auto nan = std::bit_cast<float>(bits);
    CHECK(float_to_half(nan) == 0x7e00);
    CHECK(float_to_bfloat16(nan) == 0x7fc0);
  }
}

}  // namespace
}  // namespace hvd

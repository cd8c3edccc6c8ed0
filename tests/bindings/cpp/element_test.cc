// The 16-bit floats of hvd.hpp against what IEEE 754 says, and the table of element types.
#include <cmath>
#include <cstdint>
#include <hvd.hpp>
#include <limits>
#include <string>

#include "tests/support/catch.h"

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("float16 survives the way to float and back, all 65536 of them") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    hvd::float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const float wide = half;
    if (std::isnan(wide)) {
      REQUIRE(std::isnan(static_cast<float>(hvd::float16(wide))));
    } else {
      REQUIRE(hvd::float16(wide).bits == half.bits);
    }
  }
}

TEST_CASE("float16 rounds half way between two neighbours to the even one, else to the nearer") {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    hvd::float16 low, high;
    low.bits = bits;
    high.bits = static_cast<std::uint16_t>(bits + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;  // exact
    REQUIRE(hvd::float16(middle).bits == (bits % 2 == 0 ? low : high).bits);
    REQUIRE(hvd::float16(std::nextafter(middle, 0.0f)).bits == low.bits);
    REQUIRE(hvd::float16(std::nextafter(middle, kInfinity)).bits == high.bits);
  }
}

TEST_CASE("float16 and bfloat16 have the bits that the formats prescribe") {
  struct Row {
    float value;
    std::uint16_t float16_bits, bfloat16_bits;
  };
  const Row rows[] = {
      {0.0f, 0x0000, 0x0000},        {-0.0f, 0x8000, 0x8000},       {1.0f, 0x3c00, 0x3f80},
      {-2.0f, 0xc000, 0xc000},       {65504.0f, 0x7bff, 0x4780},    {65519.0f, 0x7bff, 0x4780},
      {65520.0f, 0x7c00, 0x4780},    {1e10f, 0x7c00, 0x5015},       {0x1p-24f, 0x0001, 0x3380},
      {0x1p-25f, 0x0000, 0x3300},    {kInfinity, 0x7c00, 0x7f80},   {-kInfinity, 0xfc00, 0xff80},
      {1.00390625f, 0x3c04, 0x3f80}, {1.01171875f, 0x3c0c, 0x3f82}, {3.4e38f, 0x7c00, 0x7f80},
  };
  for (const Row& row : rows) {
    INFO(row.value);
    CHECK(hvd::float16(row.value).bits == row.float16_bits);
    CHECK(hvd::bfloat16(row.value).bits == row.bfloat16_bits);
  }
  CHECK(std::isnan(static_cast<float>(hvd::float16(std::nanf("")))));
  CHECK(std::isnan(static_cast<float>(hvd::bfloat16(std::nanf("")))));
}

TEST_CASE("every type that hvd knows is an element, and others are not") {
  static_assert(hvd::Element<std::uint8_t> && hvd::Element<std::byte> && hvd::Element<std::int8_t>);
  static_assert(hvd::Element<std::int16_t> && hvd::Element<std::int32_t> && hvd::Element<std::int64_t>);
  static_assert(hvd::Element<long> && hvd::Element<long long> && hvd::Element<const float> && hvd::Element<double>);
  static_assert(hvd::Element<hvd::float16> && hvd::Element<hvd::bfloat16> && hvd::Element<bool>);
  static_assert(!hvd::Element<std::uint16_t> && !hvd::Element<std::uint64_t> && !hvd::Element<long double>);
  static_assert(!hvd::Element<std::string> && !hvd::Element<wchar_t> && !hvd::Element<float*>);
  CHECK(hvd::detail::dtype_of<long>() == HVD_INT64);
  CHECK(hvd::detail::dtype_of<bool>() == hvd::detail::dtype_of<hvd::boolean>());
}

}  // namespace

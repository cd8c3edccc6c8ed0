#include "ops/reduction/reduce.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

namespace hvd {
namespace {

template <typename T>
constexpr DType kDType = sizeof(T) == 4 ? DType::float32 : DType::float64;

template <typename T>
DotProducts products_of(const std::vector<T>& a, const std::vector<T>& b) {
  return dot_products(kDType<T>, a.data(), b.data(), a.size());
}

template <typename T>
std::vector<T> adasum_of(std::vector<T> a, const std::vector<T>& b) {
  add_adaptively(kDType<T>, products_of(a, b), a.data(), b.data(), a.size());
  return a;
}

template <typename T>
void check_pairs() {
  using Vector = std::vector<T>;
  struct Case {
    const char* what;
    Vector a, b, sum;
  };
  const Case cases[] = {
      {"orthogonal vectors are added", {3, 0, 4, 0, 0}, {0, 2, 0, -1, 7}, {3, 2, 4, -1, 7}},
      {"equal vectors are averaged", {1, -2, 3, 0.5}, {1, -2, 3, 0.5}, {1, -2, 3, 0.5}},
      {"a shorter parallel vector counts less", {1, 2}, {2, 4}, {1.5, 3}},
      {"opposite vectors cancel", {1, 2, 3}, {-1, -2, -3}, {0, 0, 0}},
      {"something in common", {1, 0}, {1, 1}, {1.25, 0.75}},
      {"a zero vector changes nothing", {1.5, -2, 0}, {0, 0, 0}, {1.5, -2, 0}},
      {"nor if it is the first", {0, 0, 0}, {1.5, -2, 0}, {1.5, -2, 0}},
      {"zeros remain", {0, 0}, {0, 0}, {0, 0}},
      {"vectors may have no elements", {}, {}, {}},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    CHECK(adasum_of(c.a, c.b) == c.sum);
    CHECK(adasum_of(c.b, c.a) == c.sum);
  }
}

TEST_CASE("adaptive sums of two vectors") {
  check_pairs<float>();
  check_pairs<double>();
}

TEST_CASE("dot products of any length, and of parts") {
  for (const std::size_t length : {0, 1, 3, 4, 5, 8, 100, 1001}) {
    CAPTURE(length);
    std::vector<float> a, b;
    DotProducts expected;  // small whole numbers: exact in any order
    for (std::size_t i = 0; i < length; ++i) {
      a.push_back(static_cast<float>(i % 7) - 3);
      b.push_back(static_cast<float>(i % 5) - 1);
      const double x = a.back(), y = b.back();
      expected += {.ab = x * y, .aa = x * x, .bb = y * y};
    }
    const auto same = [](const DotProducts& p, const DotProducts& q) {
      return p.ab == q.ab && p.aa == q.aa && p.bb == q.bb;
    };
    CHECK(same(products_of(a, b), expected));
    const std::size_t cut = length / 3;
    DotProducts sum = dot_products(DType::float32, a.data(), b.data(), cut);
    sum += dot_products(DType::float32, a.data() + cut, b.data() + cut, length - cut);
    CHECK(same(sum, expected));
  }
}

TEST_CASE("dot products have the same bits wherever the vectors lie") {
  constexpr std::size_t kLength = 1003;
  std::vector<float> values;
  for (std::size_t i = 0; i < kLength; ++i) values.push_back(std::sin(static_cast<float>(i)));
  const DotProducts first = products_of(values, values);
  for (std::size_t shift = 1; shift < 8; ++shift) {
    std::vector<float> moved(shift);
    moved.insert(moved.end(), values.begin(), values.end());
    const auto again = dot_products(DType::float32, moved.data() + shift, values.data(), kLength);
    CHECK((again.ab == first.ab && again.aa == first.aa && again.bb == first.bb));
  }
}

TEST_CASE("dot products of floats are carried in double") {
  const std::vector<float> large(3, 1e30F), tiny(3, 1e-30F);
  CHECK(products_of(large, tiny).ab == Approx(3.0));
  CHECK(products_of(large, large).ab == Approx(3e60));
  CHECK(products_of(tiny, tiny).ab == Approx(3e-60));
  // The factor of the tiny vector, -5e59, is no float; its product with it is.
  for (const float value : adasum_of(tiny, large)) CHECK(value == Approx(0.5e30F));
}

TEST_CASE("norms near the end of a double's range do not overflow") {
  const std::vector<double> huge(1, 1e154);  // 2 * 1e308 is infinite
  CHECK(adasum_of(huge, huge) == huge);
}

TEST_CASE("a NaN or an infinity reaches the whole sum") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const std::vector<float> spoilt{1, bad, 2}, good{1, 1, 1}, zero{0, 0, 0};
  for (const auto& other : {good, zero}) {
    for (const auto& sum : {adasum_of(spoilt, other), adasum_of(other, spoilt)}) {
      CHECK_FALSE(std::isfinite(sum[1]));
    }
  }
  for (const float value : adasum_of(spoilt, good)) CHECK(std::bit_cast<std::uint32_t>(value) == 0x7fc00000U);
}

}  // namespace
}  // namespace hvd

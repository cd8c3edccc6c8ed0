#include "tests/trace/values.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace hvd::trace {

namespace {

// What can be special about an operation's values.
struct Style {
  bool product = false;     // near 1: products of others are soon infinite
  bool no_special = false;  // one NaN would make an adaptive sum nothing but NaNs
};

constexpr double kSpecial[] = {0.0, -0.0, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN(), 1e-41};

// Of either sign, with exponents so far apart that additions round.
double float_value(std::uint64_t bits, const Style& style, int most_exponent) {
  if (!style.no_special && bits % 61 == 0) return kSpecial[(bits >> 8) % std::size(kSpecial)];
  const double magnitude = 1.0 + static_cast<double>(bits >> 12) * 0x1p-52;
  if (style.product) return magnitude * 0.7;
  const int exponent = static_cast<int>(bits % static_cast<std::uint64_t>(2 * most_exponent + 1)) - most_exponent;
  return std::ldexp((bits >> 11 & 1) != 0 ? -magnitude : magnitude, exponent);
}

// Small, or such that sums wrap around.
template <std::integral T>
T integer_value(std::uint64_t bits) {
  if (bits % 31 == 0) return static_cast<T>(bits >> 8);
  if constexpr (std::signed_integral<T>) return static_cast<T>(static_cast<int>(bits % 5) - 2);
  return static_cast<T>(bits % 3);
}

template <typename T>
T value_of(std::uint64_t bits, const Style& style) {
  if constexpr (std::same_as<T, boolean>) return bits % 2 == 0;
  if constexpr (std::same_as<T, double>) return float_value(bits, style, 40);
  if constexpr (std::same_as<T, float16>) return T(static_cast<float>(float_value(bits, style, 8)));
  if constexpr (std::same_as<T, float> || std::same_as<T, bfloat16>) {
    return T(static_cast<float>(float_value(bits, style, 20)));
  }
  if constexpr (std::integral<T>) return integer_value<T>(bits);
}

template <typename T>
void fill_as(void* memory, std::int64_t elements, std::uint64_t seed, const Style& style) {
  Random random(seed);
  for (T& value : std::span(static_cast<T*>(memory), static_cast<std::size_t>(elements))) {
    value = value_of<T>(random.next(), style);
  }
}

}  // namespace

void fill(void* memory, const Operation& operation, std::size_t tensor, int rank) {
  const TensorSpec& spec = operation.tensors[tensor];
  const std::uint64_t seed = mix(operation.key + static_cast<std::uint64_t>(rank)) + tensor;
  const Style style{.product = operation.reduce_op == HVD_PRODUCT, .no_special = operation.reduce_op == HVD_ADASUM};
  const auto as = [&]<typename T>(T) { fill_as<T>(memory, spec.elements(), seed, style); };
  switch (spec.dtype) {
    case HVD_UINT8: return as(std::uint8_t{});
    case HVD_INT8: return as(std::int8_t{});
    case HVD_INT16: return as(std::int16_t{});
    case HVD_INT32: return as(std::int32_t{});
    case HVD_INT64: return as(std::int64_t{});
    case HVD_FLOAT16: return as(float16{});
    case HVD_BFLOAT16: return as(bfloat16{});
    case HVD_FLOAT32: return as(float{});
    case HVD_FLOAT64: return as(double{});
    case HVD_BOOL: return as(boolean{});
    case HVD_UINT16: return as(std::uint16_t{});
    case HVD_UINT32: return as(std::uint32_t{});
    case HVD_UINT64: return as(std::uint64_t{});
    default: std::memset(memory, 0, spec.bytes());
  }
}

}  // namespace hvd::trace

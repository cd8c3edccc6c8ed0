// The element types of tensors: 16-bit floats, a bool stored as a byte, and the concept Element. Included by hvd.hpp.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hvd.h"

namespace hvd {
inline namespace v1 {

// The 16-bit floats: storage and conversion only. Arithmetic, like hvd's sums, is in float; sums are rounded once.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  explicit constexpr float16(float value);
  constexpr operator float() const;
};

struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit constexpr bfloat16(float value);
  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

// A bool that std::vector stores like other types, one byte each. Minimum and maximum are "and" and "or".
struct boolean {
  bool value = false;

  boolean() = default;
  constexpr boolean(bool v) : value(v) {}  // NOLINT(google-explicit-constructor): it is a bool
  constexpr operator bool() const { return value; }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2 && sizeof(boolean) == 1 && sizeof(bool) == 1);

namespace detail {

// The hvd_dtype of T, or -1. Integers are mapped by size and sign, so that long and long long are both int64.
template <typename T>
consteval int dtype_of() {
  if constexpr (std::same_as<T, bool> || std::same_as<T, boolean>) return HVD_BOOL;
  if constexpr (std::same_as<T, float16>) return HVD_FLOAT16;
  if constexpr (std::same_as<T, bfloat16>) return HVD_BFLOAT16;
  if constexpr (std::same_as<T, float>) return HVD_FLOAT32;
  if constexpr (std::same_as<T, double>) return HVD_FLOAT64;
  if constexpr (std::same_as<T, std::byte>) return HVD_UINT8;
  if constexpr (std::integral<T> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                !std::same_as<T, char16_t> && !std::same_as<T, char32_t>) {
    if constexpr (std::unsigned_integral<T>) return sizeof(T) == 1 ? HVD_UINT8 : -1;
    if constexpr (sizeof(T) == 1) return HVD_INT8;
    if constexpr (sizeof(T) == 2) return HVD_INT16;
    if constexpr (sizeof(T) == 4) return HVD_INT32;
    if constexpr (sizeof(T) == 8) return HVD_INT64;
  }
  return -1;
}

}  // namespace detail

template <typename T>
concept Element = detail::dtype_of<std::remove_cv_t<T>>() >= 0;

// Rounds to nearest, ties to even; NaN stays NaN.
constexpr bfloat16::bfloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const bool nan = (word & 0x7fff'ffffu) > 0x7f80'0000u;
  const std::uint32_t rounded = nan ? word | 0x0040'0000u : word + 0x7fffu + ((word >> 16) & 1u);
  bits = static_cast<std::uint16_t>(rounded >> 16);
}

constexpr float16::float16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000u;
  const std::uint32_t magnitude = word & 0x7fff'ffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f80'0000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x4780'0000u) {  // 65536 and more, infinity
    half = 0x7c00u;
  } else if (magnitude >= 0x3880'0000u) {  // normal numbers: exponent bias 127 becomes 15, 13 bits are rounded away
    half = (magnitude - 0x3800'0000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // below 2^-14: a multiple of 2^-24. Adding 0.5, whose ulp is 2^-24, does the rounding.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f00'0000u;
  }
  bits = static_cast<std::uint16_t>(sign | half);
}

constexpr float16::operator float() const {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 0x7f80'0000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | fraction << 13);
}

}  // namespace v1
}  // namespace hvd

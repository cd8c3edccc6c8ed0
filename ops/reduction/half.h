// Conversions of numbers: bitwise, of the two 16-bit float formats, and of doubles to integers. The former rounds to
// nearest, ties to even; keeps infinities; converts every NaN to the one of reduce.h. The reference for every
// instruction set: all of them produce these bits.
//
// Always inlined: these are compiled for several instruction sets in one program, and a copy compiled for one of them
// must not be linked into another's code (kernels.h).
#pragma once

#include <cstdint>
#include <limits>

namespace hvd {

using HalfBits = std::uint16_t;      // IEEE binary16: 1 sign, 5 exponent, 10 fraction bits
using Bfloat16Bits = std::uint16_t;  // the upper half of a float32

[[gnu::always_inline]] constexpr float half_to_float(HalfBits half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = half & 0x7c00u;
  const std::uint32_t fraction = half & 0x03ffu;
  // Exponent 0: multiples of 2^-24, exact in a float32.
  const auto tiny = __builtin_bit_cast(std::uint32_t, static_cast<float>(static_cast<int>(fraction)) * 0x1p-24f);
  const std::uint32_t normal = ((exponent | fraction) << 13) + 0x38000000u;
  const std::uint32_t magnitude = exponent == 0 ? tiny : exponent == 0x7c00u ? 0x7f800000u : normal;
  const bool is_nan = exponent == 0x7c00u && fraction != 0;
  return __builtin_bit_cast(float, is_nan ? 0x7fc00000u : sign | magnitude);
}

[[gnu::always_inline]] constexpr HalfBits float_to_half(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the result counts multiples of 2^-24, the distance of floats at 0.5: the addition rounds.
  const auto tiny = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t half = magnitude >= 0x47800000u ? 0x7c00u : magnitude < 0x38800000u ? tiny : normal;
  return static_cast<HalfBits>(magnitude > 0x7f800000u ? 0x7e00u : sign | half);
}

// For the bits of a float, or of a vector of them, that is not a NaN other than the one of reduce.h: returns the
// nearest bfloat16 in the upper half, with an undefined lower half.
template <typename Words>
[[gnu::always_inline]] constexpr Words round_to_bfloat16(Words bits) {
  return bits + 0x7fffu + ((bits >> 16) & 1u);
}

[[gnu::always_inline]] constexpr float bfloat16_to_float(Bfloat16Bits value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  return __builtin_bit_cast(float, (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits);
}

[[gnu::always_inline]] constexpr Bfloat16Bits float_to_bfloat16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return static_cast<Bfloat16Bits>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : round_to_bfloat16(bits) >> 16);
}

// Converts a double to an integer: toward zero; values out of range become the nearest limit, NaN becomes 0. Code for
// GPUs uses it, too.
template <typename T>
[[gnu::always_inline]] constexpr T truncate(double value) {
  constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::lowest());
  // 2^63 - 1 is not a double: the limit is the first value that is out of range.
  constexpr T kHalf = std::numeric_limits<T>::max() / 2 + 1;
  constexpr double kBeyond = 2.0 * static_cast<double>(kHalf);
  constexpr T kHighest = std::numeric_limits<T>::max();
  if (value != value) return T{0};
  if (value <= kLowest) return static_cast<T>(kLowest);
  if (value >= kBeyond) return kHighest;
  return static_cast<T>(value);
}

}  // namespace hvd

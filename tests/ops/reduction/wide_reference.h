// Computes the expected result of reduce() from the definition in reduce.h, with none of its code, an element at a
// time.
//
// Sums and products are taken in a type more than twice as wide as the accumulator's: rounding that result once more,
// to the accumulator, is the same as rounding the exact one (S. Figueroa, "When is double rounding innocuous?", 1995).
// The 16-bit formats are computed by value from their definition, not by bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/reduction/reduce.h"

namespace hvd {

using Buffer = std::vector<std::byte>;

struct HalfFormat {
  int fraction_bits;
  int bias;

  int exponent_bits() const { return 15 - fraction_bits; }
  std::uint16_t infinity() const { return static_cast<std::uint16_t>(((1 << exponent_bits()) - 1) << fraction_bits); }
  std::uint16_t nan() const { return static_cast<std::uint16_t>(infinity() | 1 << (fraction_bits - 1)); }

  double value_of(std::uint16_t bits) const;
  std::uint16_t nearest(double value) const;
};

inline constexpr HalfFormat kFloat16{.fraction_bits = 10, .bias = 15};
inline constexpr HalfFormat kBfloat16{.fraction_bits = 7, .bias = 127};

// The result of reduce() with the same arguments.
Buffer wide_reference(const Reduction& reduction, DType in_type, std::span<const void* const> inputs, DType out_type,
                      std::size_t elements);

}  // namespace hvd

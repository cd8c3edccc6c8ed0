// Converts a double to an integer: toward zero; values out of range become the nearest limit, NaN becomes 0.
//
// Always inlined for the same reason as half.h; constexpr, so that code for GPUs may use it too.
#pragma once

#include <limits>

namespace hvd {

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

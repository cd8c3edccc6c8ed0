// Dimensions of a tensor, row-major. A zero-dimensional tensor has one element.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace hvd {

using Shape = std::vector<std::int64_t>;

inline constexpr int kMaxDimensions = 64;

inline std::int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Elements in one row, that is, in all dimensions but the first; 1 for a vector. Requires at least one dimension.
inline std::int64_t row_elements_of(const Shape& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string to_string(const Shape& shape);  // "[3, 4]"

}  // namespace hvd

// The middle of some numbers, which a few outliers do not move; of an even number of them, the mean of the two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hvd {

// Of at least one number.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace hvd

// The median, which a few outliers do not change; of an even number of values, the mean of the middle two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hvd {

// Requires at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace hvd

#include "tools/bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace hvd::bench {

double quantile(std::vector<double> values, double share) {
  const double place = std::ceil(share * static_cast<double>(values.size())) - 1;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(place, 0.0));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace hvd::bench

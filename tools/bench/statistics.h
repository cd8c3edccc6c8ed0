// Statistics of a row's times. Pure.
#pragma once

#include <vector>

namespace hvd::bench {

// Returns the smallest value that at least `share` (in (0, 1]) of the values do not exceed. `values` must not be empty.
double quantile(std::vector<double> values, double share);

}  // namespace hvd::bench

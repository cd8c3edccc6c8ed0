// What a row says about its times. Pure.
#pragma once

#include <vector>

namespace hvd::bench {

// The smallest of `values` that a share of them (more than 0, at most 1) does not exceed. `values` must not be empty.
double quantile(std::vector<double> values, double share);

}  // namespace hvd::bench

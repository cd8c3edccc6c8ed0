// Adasum computed from its definition: a plain loop in double over whole vectors.
#pragma once

#include <vector>

#include "core/tensor/tensor.h"

namespace hvd::testing {

// One vector for each rank, in rank order.
std::vector<double> adasum_reference(std::vector<std::vector<double>> vectors);

// How far from it a result may lie: rounded once to the tensors' type, and to accumulators when prescaled and on each
// level. Holds for vectors whose norms and elements are of the same magnitude.
struct AdasumTolerance {
  AdasumTolerance(DType dtype, const std::vector<std::vector<double>>& vectors);
  bool allows(double result, double reference) const;

  double relative;
  double absolute;
};

}  // namespace hvd::testing

#include "tests/support/adasum_reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hvd::testing {

namespace {

std::vector<double> adasum_of_two(const std::vector<double>& a, const std::vector<double>& b) {
  const double ab = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  std::vector<double> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum[i] = (1 - (aa == 0 ? 0 : ab / (2 * aa))) * a[i] + (1 - (bb == 0 ? 0 : ab / (2 * bb))) * b[i];
  }
  return sum;
}

// Of one rounding to the nearest, relative to the value.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::float16: return 0x1p-11;
    case DType::bfloat16: return 0x1p-8;
    case DType::float32: return 0x1p-24;
    default: return 0x1p-53;
  }
}

}  // namespace

std::vector<double> adasum_reference(std::vector<std::vector<double>> vectors) {
  while (vectors.size() > 1) {
    std::vector<std::vector<double>> next;
    for (std::size_t i = 0; i < vectors.size(); i += 2) {
      next.push_back(i + 1 < vectors.size() ? adasum_of_two(vectors[i], vectors[i + 1]) : vectors[i]);
    }
    vectors = next;
  }
  return vectors.front();
}

AdasumTolerance::AdasumTolerance(DType dtype, const std::vector<std::vector<double>>& vectors)
    : relative(rounding_of(dtype)), absolute(dtype == DType::float16 ? 0x1p-25 : 0) {
  double largest = 0;
  for (const auto& vector : vectors) {
    for (const double value : vector) largest = std::max(largest, std::abs(value));
  }
  // A level at most triples a value and rounds it; prescaling does so before. In double the dot products' roundings
  // count too.
  const double levels = std::ceil(std::log2(static_cast<double>(vectors.size())));
  const double accumulator = dtype == DType::float64 ? 100 * 0x1p-53 : 0x1p-24;
  absolute += accumulator * largest * (levels + 1) * std::pow(3.0, levels);
}

bool AdasumTolerance::allows(double result, double reference) const {
  return std::abs(result - reference) <= relative * std::abs(reference) + absolute;
}

}  // namespace hvd::testing

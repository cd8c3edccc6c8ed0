#include "ops/reduction/reduce.h"

#include <cmath>
#include <limits>

namespace hvd {

namespace {

// Independent partial sums, so that they do not wait for each other and can share a register.
constexpr std::size_t kLanes = 4;

// Element i goes to lane i % kLanes; the lanes are added up in order.
template <typename T>
DotProducts multiply(const void* first, const void* second, std::size_t elements) {
  const T* a = static_cast<const T*>(first);
  const T* b = static_cast<const T*>(second);
  double ab[kLanes] = {}, aa[kLanes] = {}, bb[kLanes] = {};
  const auto add = [&](std::size_t i, std::size_t lane) {
    const double x = static_cast<double>(a[i]);
    const double y = static_cast<double>(b[i]);
    ab[lane] += x * y;
    aa[lane] += x * x;
    bb[lane] += y * y;
  };
  std::size_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (std::size_t lane = 0; i + lane < elements; ++lane) add(i + lane, lane);

  DotProducts sum;
  for (std::size_t lane = 0; lane < kLanes; ++lane) sum += {.ab = ab[lane], .aa = aa[lane], .bb = bb[lane]};
  return sum;
}

// In double: a factor may be as large as the ratio of the norms, beyond a float's range, though the product is not.
template <typename T>
void add(double of_a, double of_b, void* target, const void* other, std::size_t elements) {
  T* a = static_cast<T*>(target);
  const T* b = static_cast<const T*>(other);
  for (std::size_t i = 0; i < elements; ++i) {
    const double sum = of_a * static_cast<double>(a[i]) + of_b * static_cast<double>(b[i]);
    a[i] = std::isnan(sum) ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(sum);
  }
}

// Halves the quotient last: twice a norm may be infinite where the norm is not.
double share(double product, double norm) { return norm == 0.0 ? 1.0 : 1.0 - product / norm / 2.0; }

}  // namespace

DotProducts& DotProducts::operator+=(const DotProducts& other) {
  ab += other.ab;
  aa += other.aa;
  bb += other.bb;
  return *this;
}

DotProducts dot_products(DType accumulator, const void* a, const void* b, std::size_t elements) {
  return accumulator == DType::float64 ? multiply<double>(a, b, elements) : multiply<float>(a, b, elements);
}

void add_adaptively(DType accumulator, const DotProducts& products, void* a, const void* b, std::size_t elements) {
  const double of_a = share(products.ab, products.aa), of_b = share(products.ab, products.bb);
  if (accumulator == DType::float64) {
    add<double>(of_a, of_b, a, b, elements);
  } else {
    add<float>(of_a, of_b, a, b, elements);
  }
}

}  // namespace hvd

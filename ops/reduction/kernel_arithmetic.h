// Arithmetic on vectors: operations, factors, the one NaN. Included by one source file per instruction set (kernels.h).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/reduction/kernel_formats.h"
#include "ops/reduction/truncate.h"

namespace hvd {
namespace {

// Integers wrap around, like unsigned ones; scalars in at least 32 bits, where promotion leaves them unsigned.
template <typename T, typename Operation>
Vector<T> wrapping(Vector<T> a, Vector<T> b, Operation operation) {
  if constexpr (kRegisterBytes == 0) {
    using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    return static_cast<T>(operation(static_cast<Wide>(a), static_cast<Wide>(b)));
  } else {
    using Unsigned = Vector<std::make_unsigned_t<T>>;
    return __builtin_bit_cast(Vector<T>, operation(__builtin_bit_cast(Unsigned, a), __builtin_bit_cast(Unsigned, b)));
  }
}

struct Sum {
  template <typename T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    if constexpr (std::is_integral_v<T>) {
      return wrapping<T>(a, b, [](auto x, auto y) { return x + y; });
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    if constexpr (std::is_integral_v<T>) {
      return wrapping<T>(a, b, [](auto x, auto y) { return x * y; });
    } else {
      return a * b;
    }
  }
};

// Of equal numbers (+0 and -0) returns the last; of a number and a NaN, the NaN.
struct Min {
  template <typename T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    const Vector<T> lower = a < b ? a : b;
    return a == a ? lower : a;
  }
};

struct Max {
  template <typename T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    const Vector<T> higher = a > b ? a : b;
    return a == a ? higher : a;
  }
};

// The NaN that an operation returns depends on the processor, and on the compiler's order of operands.
template <typename T>
Vector<T> with_one_nan(Vector<T> values) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
    return values == values ? values : kNan - Vector<T>{};
  } else {
    return values;
  }
}

// Factors. apply() multiplies kCount vectors in place.

struct Unscaled {
  explicit Unscaled(double) {}
  template <int kCount, typename V>
  void apply(V*) const {}
};

// In the floats' own type, which represents the factor exactly: the product is rounded once, as if computed in double.
template <typename T>
class InOwnType {
 public:
  explicit InOwnType(double factor) : factor_(static_cast<T>(factor)) {}
  template <int kCount>
  [[gnu::always_inline]] void apply(Vector<T>* values) const {
    for (int v = 0; v < kCount; ++v) values[v] = values[v] * factor_;
  }

 private:
  T factor_;
};

// Floats by a factor that only a double represents.
class InDouble {
 public:
  explicit InDouble(double factor) : factor_(factor) {}
  template <int kCount>
  [[gnu::always_inline]] void apply(Vector<float>* values) const {
    for (int v = 0; v < kCount; ++v) values[v] = multiply_in_double(values[v], factor_);
  }

 private:
  double factor_;
};

// Integers, in double. Lane by lane: averages of integers are rare.
template <typename T>
class Truncated {
 public:
  explicit Truncated(double factor) : factor_(factor), scales_(factor != 1.0) {
    // An average: 49 * (1.0 / 49) is less than 1 and would be truncated to 0, but 49 / 49.0 is exact.
    const double divisor = __builtin_nearbyint(1.0 / factor);
    divides_ = __builtin_fabs(factor) < 1.0 && 1.0 / divisor == factor;
    if (divides_) factor_ = divisor;
  }

  template <int kCount>
  [[gnu::noinline]] void apply(Vector<T>* values) const {
    if (!scales_) return;
    using Lane [[gnu::may_alias]] = T;
    Lane* const lanes = reinterpret_cast<Lane*>(values);
    const auto each = [lanes](auto scale) {
      for (std::size_t i = 0; i < kCount * kLanes<T>; ++i) {
        lanes[i] = truncate<T>(scale(static_cast<double>(lanes[i])));
      }
    };
    if (divides_) {
      each([divisor = factor_](double value) { return value / divisor; });
    } else {
      each([factor = factor_](double value) { return value * factor; });
    }
  }

 private:
  double factor_;
  bool scales_;
  bool divides_;
};

}  // namespace
}  // namespace hvd

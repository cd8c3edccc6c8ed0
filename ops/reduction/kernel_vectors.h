// Vectors: the formats of elements in memory, and the arithmetic: operations, factors, the one NaN. Included by one
// source file per instruction set (kernels.h), after it has defined
//
//   kRegisterBytes                                      the length of a vector; 0: no vectors, a number at a time
//   load_float16(from), store_float16(to, values)       a vector of float32 from float16 and back
//   multiply_in_double(values, factor)                  a vector of float32 by a double, rounded once
//
// A format loads kVectors vectors of its carrier type, and stores them. Lanes may be in a different order than in
// memory if load and store agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/reduction/half.h"

namespace hvd {
namespace {

template <typename T, std::size_t kBytes>
struct Register {
  using Type [[gnu::vector_size(kBytes)]] = T;
};
template <typename T>
struct Register<T, 0> {
  using Type = T;
};

template <typename T>
using Vector = typename Register<T, kRegisterBytes>::Type;
template <typename T>
constexpr std::size_t kLanes = kRegisterBytes == 0 ? 1 : kRegisterBytes / sizeof(T);

// Copies, so that neither alignment nor the pointer's type matters.
template <typename V>
[[gnu::always_inline]] inline V load_as(const void* from) {
  V values;
  __builtin_memcpy(&values, from, sizeof values);
  return values;
}
template <typename V>
[[gnu::always_inline]] inline void store_as(void* to, V values) {
  __builtin_memcpy(to, &values, sizeof values);
}

// Elements in their own type.
template <typename T>
struct Plain {
  using Memory = T;
  using Carrier = T;
  static constexpr int kVectors = 1;
  static void load(const T* from, Vector<T>* to) { *to = load_as<Vector<T>>(from); }
  static void store(T* to, const Vector<T>* from) { store_as(to, *from); }
};

struct Float16 {
  using Memory = HalfBits;
  using Carrier = float;
  static constexpr int kVectors = 1;
  static void load(const Memory* from, Vector<float>* to) { *to = load_float16(from); }
  static void store(Memory* to, const Vector<float>* from) { store_float16(to, *from); }
};

using Words = Vector<std::uint32_t>;

// A bfloat16 is the upper half of a float32: two neighbours, as one 32-bit word, are converted to floats and back by
// shifts, masks and two additions.
//
// AVX-512's instruction for the conversion back (VCVTNEPS2BF16) is not used. It treats denormals as zero, which would
// have to be detected and corrected; and it needs the elements in memory order, which costs more than it saves: sums
// are 1.2 to 1.5 times as fast without it (Zen 4). Only pure conversions would gain, by a factor of 1.2, which is not
// worth another instruction set.
struct Bfloat16 {
  using Memory = Bfloat16Bits;
  using Carrier = float;
  static constexpr int kVectors = 2;
  static constexpr std::uint32_t kUpper = 0xffff0000u;

  // The element in the lower half goes into the first vector, the one in the upper half into the second.
  static void load(const Memory* from, Vector<float>* to) {
    const auto words = load_as<Words>(from);
    to[0] = __builtin_bit_cast(Vector<float>, words << 16);
    to[1] = __builtin_bit_cast(Vector<float>, words & kUpper);
  }
  static void store(Memory* to, const Vector<float>* from) {
    const Words lower = round_to_bfloat16(__builtin_bit_cast(Words, from[0]));
    const Words upper = round_to_bfloat16(__builtin_bit_cast(Words, from[1]));
    store_as(to, (lower >> 16) | (upper & kUpper));
  }
};

// For conversions between bfloat16 and float32, both of which must be in memory order.
struct Bfloat16InOrder {
  using Memory = Bfloat16Bits;
  using Carrier = float;
  static constexpr int kVectors = 1;
  using Halves = typename Register<Bfloat16Bits, kRegisterBytes / 2>::Type;

  static void load(const Memory* from, Vector<float>* to) {
    *to = __builtin_bit_cast(Vector<float>, convert<Words>(load_as<Halves>(from)) << 16);
  }
  static void store(Memory* to, const Vector<float>* from) {
    store_as(to, convert<Halves>(round_to_bfloat16(__builtin_bit_cast(Words, *from)) >> 16));
  }

 private:
  template <typename To, typename From>
  static To convert(From from) {
    if constexpr (kRegisterBytes == 0) {
      return static_cast<To>(from);
    } else {
      return __builtin_convertvector(from, To);
    }
  }
};

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

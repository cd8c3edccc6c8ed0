// The loop of every reduction, over vectors. Included by one source file per instruction set (kernels.h), after it has
// defined HVD_KERNELS as the name of its table, and
//
//   kRegisterBytes                                      the length of a vector; 0: no vectors, a number at a time
//   load_float16(from), store_float16(to, values)       a vector of float32 from float16 and back
//   multiply_in_double(values, factor)                  a vector of float32 by a double, rounded once
//
// One pass: a few vectors of elements at a time are loaded from the first source, folded with those of the second, the
// third and so on, scaled, rounded and stored. Only results are written, whatever the number of sources, and a
// destination that is also a source is written after it has been read.
//
// With more than kAtOnce sources, which mostly have the same offsets in pages, the first-level cache has no room for
// the data that is prefetched for all of them. Then a block of partial results stays in that cache while kGroup sources
// after another are folded into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/reduction/half.h"
#include "ops/reduction/kernels.h"

namespace hvd {
namespace {

// ---- Vectors: the formats of elements in memory, and the arithmetic: operations, factors, the one NaN.

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

// A format loads kVectors vectors of its carrier type, and stores them. Lanes may be in a different order than in
// memory if load and store agree.

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

// ---- The loop

// Vectors at a time: enough for independent additions that do not wait for each other. Without vectors, the numbers
// that a format needs.
constexpr int kVectors = kRegisterBytes == 0 ? 2 : 4;
constexpr std::size_t kAtOnce = 16;
constexpr std::size_t kGroup = 8;
constexpr std::size_t kCarriedBytes = 8192;

template <typename In, typename Out, typename Op, typename Prescale, typename Postscale>
class Folding {
 public:
  explicit Folding(const Operands& operands)
      : sources_(operands.sources),
        count_(operands.count),
        out_(static_cast<Result*>(operands.destination)),
        prescale_(operands.prescale),
        postscale_(operands.postscale) {}

  void run(std::size_t elements) const {
    std::size_t done = 0;
    // Only for sums: the other operations are rare, and this code is long.
    if constexpr (std::is_same_v<Op, Sum>) done = count_ > kAtOnce ? by_groups(elements) : 0;
    done = at_once(done, elements);
    if (done < elements) rest(done, elements - done);
  }

 private:
  using T = typename In::Carrier;
  using Source = typename In::Memory;
  using Result = typename Out::Memory;

  static constexpr std::size_t kStep = kVectors * kLanes<T>;

  // Processes whole steps from element `first` on; returns the first element that is left.
  std::size_t at_once(std::size_t first, std::size_t elements) const {
    // Locals, because the compiler must assume that storing a result may change a member.
    const void* const* const sources = sources_;
    const std::size_t count = count_;
    Result* const out = out_;
    const Prescale prescale = prescale_;
    const Postscale postscale = postscale_;
    for (; first + kStep <= elements; first += kStep) {
      Vector<T> folded[kVectors];
      load(sources[0], first, prescale, folded);
      fold(folded, sources + 1, count - 1, first, prescale);
      store(folded, postscale, out + first);
    }
    return first;
  }

  // Processes whole blocks.
  [[gnu::noinline]] std::size_t by_groups(std::size_t elements) const {
    constexpr std::size_t kSteps = kCarriedBytes / sizeof(Vector<T>) / kVectors;
    Vector<T> carried[kSteps][kVectors];
    std::size_t block = 0;
    for (; block + kSteps * kStep <= elements; block += kSteps * kStep) {
      for (std::size_t s = 0; s < kSteps; ++s) load(sources_[0], block + s * kStep, prescale_, carried[s]);
      for (std::size_t next = 1; next < count_; next += kGroup) {
        const std::size_t group = count_ - next < kGroup ? count_ - next : kGroup;
        for (std::size_t s = 0; s < kSteps; ++s) {
          Vector<T> folded[kVectors];
          for (int v = 0; v < kVectors; ++v) folded[v] = carried[s][v];
          fold(folded, sources_ + next, group, block + s * kStep, prescale_);
          for (int v = 0; v < kVectors; ++v) carried[s][v] = folded[v];
        }
      }
      for (std::size_t s = 0; s < kSteps; ++s) store(carried[s], postscale_, out_ + block + s * kStep);
    }
    return block;
  }

  // Processes less than a step, through copies of the length of a step.
  void rest(std::size_t first, std::size_t elements) const {
    Source padded[kStep]{};
    const void* const source = padded;
    const auto copy = [&](const void* from) {
      __builtin_memcpy(padded, static_cast<const Source*>(from) + first, elements * sizeof(Source));
    };
    Vector<T> folded[kVectors];
    copy(sources_[0]);
    load(source, 0, prescale_, folded);
    for (std::size_t k = 1; k < count_; ++k) {
      copy(sources_[k]);
      fold(folded, &source, 1, 0, prescale_);
    }
    Result results[kStep];
    store(folded, postscale_, results);
    __builtin_memcpy(out_ + first, results, elements * sizeof(Result));
  }

  [[gnu::always_inline]] static inline void load(const void* source, std::size_t at, const Prescale& prescale,
                                                 Vector<T>* to) {
    const Source* from = static_cast<const Source*>(source) + at;
    for (int v = 0; v < kVectors; v += In::kVectors) In::load(from + v * kLanes<T>, to + v);
    prescale.template apply<kVectors>(to);
  }

  [[gnu::always_inline]] static inline void fold(Vector<T>* folded, const void* const* sources, std::size_t count,
                                                 std::size_t at, const Prescale& prescale) {
    for (std::size_t k = 0; k < count; ++k) {
      Vector<T> values[kVectors];
      load(sources[k], at, prescale, values);
      for (int v = 0; v < kVectors; ++v) folded[v] = Op::template of<T>(folded[v], values[v]);
    }
  }

  [[gnu::always_inline]] static inline void store(Vector<T>* folded, const Postscale& postscale, Result* to) {
    postscale.template apply<kVectors>(folded);
    for (int v = 0; v < kVectors; ++v) folded[v] = with_one_nan<T>(folded[v]);
    for (int v = 0; v < kVectors; v += Out::kVectors) Out::store(to + v * kLanes<T>, folded + v);
  }

  const void* const* const sources_;
  const std::size_t count_;
  Result* const out_;
  const Prescale prescale_;
  const Postscale postscale_;
};

// NaN counts as representable: its products are NaN in any type.
template <typename T>
bool holds(double factor) {
  return static_cast<double>(static_cast<T>(factor)) == factor || factor != factor;
}

// Multiplying each result by 1 costs less than another copy of the code, and most sums are averages; multiplying every
// source, too, would be measurable.
template <typename In, typename Out, typename Op, typename Scale>
void fold_scaled(const Operands& operands) {
  if (operands.prescale == 1.0) {
    Folding<In, Out, Op, Unscaled, Scale>(operands).run(operands.elements);
  } else {
    Folding<In, Out, Op, Scale, Scale>(operands).run(operands.elements);
  }
}

template <typename In, typename Out, typename Op>
void fold(const Operands& operands) {
  using T = typename In::Carrier;
  if constexpr (std::is_integral_v<T>) {
    const bool scales = operands.prescale != 1.0 || operands.postscale != 1.0;
    if (scales) return Folding<In, Out, Op, Truncated<T>, Truncated<T>>(operands).run(operands.elements);
    return Folding<In, Out, Op, Unscaled, Unscaled>(operands).run(operands.elements);
  } else {
    if constexpr (std::is_same_v<In, Plain<float>> && std::is_same_v<Out, Plain<float>>) {
      const bool both_held = holds<T>(operands.prescale) && holds<T>(operands.postscale);
      if (!both_held) return fold_scaled<In, Out, Op, InDouble>(operands);
    }
    return fold_scaled<In, Out, Op, InOwnType<T>>(operands);
  }
}

template <typename In, typename Out = In>
Kernels::Fold fold_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return fold<In, Out, Sum>;
    case ReduceOp::min: return fold<In, Out, Min>;
    case ReduceOp::max: return fold<In, Out, Max>;
    case ReduceOp::product: return fold<In, Out, Product>;
    case ReduceOp::average:
    case ReduceOp::adasum: return nullptr;
  }
  return nullptr;
}

Kernels::Fold select_fold(DType in, DType out, ReduceOp op) {
  using Float = Plain<float>;
  switch (in) {
    case DType::boolean:  // 0 or 1: min is "and", max is "or"
    case DType::uint8: return fold_of<Plain<std::uint8_t>>(op);
    case DType::int8: return fold_of<Plain<std::int8_t>>(op);
    case DType::int16: return fold_of<Plain<std::int16_t>>(op);
    case DType::int32: return fold_of<Plain<std::int32_t>>(op);
    case DType::int64: return fold_of<Plain<std::int64_t>>(op);
    case DType::float64: return fold_of<Plain<double>>(op);
    case DType::float16: return out == in ? fold_of<Float16>(op) : fold_of<Float16, Float>(op);
    case DType::bfloat16: return out == in ? fold_of<Bfloat16>(op) : fold_of<Bfloat16InOrder, Float>(op);
    case DType::float32:
      if (out == DType::float16) return fold_of<Float, Float16>(op);
      return out == DType::bfloat16 ? fold_of<Float, Bfloat16InOrder>(op) : fold_of<Float>(op);
    case DType::uint16:
    case DType::uint32:
    case DType::uint64: return nullptr;
  }
  return nullptr;
}

}  // namespace

constinit const Kernels HVD_KERNELS{.fold = select_fold};

}  // namespace hvd

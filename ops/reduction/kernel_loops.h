// The loops themselves, included by exactly one source file per instruction set, which defines HVD_KERNELS as the name
// of its table. Everything has internal linkage, so that code compiled for a newer processor is never merged with its
// twin for an older one; for the same reason nothing here calls an inline function of the standard library.
//
// The loops are plain and left to the compiler's vectoriser, except for the float16 conversions, which it does not
// know. No loop reorders a sum, so that every instruction set computes the same bits.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/reduction/half.h"
#include "ops/reduction/kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

// A destination is a source exactly or not at all: no element depends on another.
#if defined(__clang__)
#define HVD_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define HVD_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace hvd {
namespace {

// Integers wrap around: computed unsigned, and no narrower than 32 bits, where promotion would make them signed again.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Sum {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    }
  }
};

struct Product {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    }
  }
};

// A NaN wins, the first of several. (Two choices of one condition each: what the vectoriser understands.)
struct Min {
  template <typename T>
  static T of(T a, T b) {
    const T lower = a < b ? a : b;
    return a != a ? a : lower;
  }
};

struct Max {
  template <typename T>
  static T of(T a, T b) {
    const T higher = a > b ? a : b;
    return a != a ? a : higher;
  }
};

template <typename T, typename Op>
void fold(void* destination, const void* const* sources, int count, std::size_t elements) {
  T* out = static_cast<T*>(destination);
  const T* a = static_cast<const T*>(sources[0]);
  const T* b = static_cast<const T*>(sources[1]);
  if (count == 2) {
    HVD_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < elements; ++i) out[i] = Op::of(a[i], b[i]);
    return;
  }
  const T* c = static_cast<const T*>(sources[2]);
  if (count == 3) {
    HVD_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < elements; ++i) out[i] = Op::of(Op::of(a[i], b[i]), c[i]);
    return;
  }
  const T* d = static_cast<const T*>(sources[3]);
  HVD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < elements; ++i) out[i] = Op::of(Op::of(Op::of(a[i], b[i]), c[i]), d[i]);
}

// Toward zero; values that do not fit become the nearest that does, NaN becomes 0.
template <typename T>
T truncate(double value) {
  constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::lowest());
  // 2^63 - 1 is no double: the limit is the first value that does not fit.
  constexpr T kHalf = std::numeric_limits<T>::max() / 2 + 1;
  constexpr double kBeyond = 2.0 * static_cast<double>(kHalf);
  constexpr T kHighest = std::numeric_limits<T>::max();
  if (value != value) return T{0};
  if (value <= kLowest) return static_cast<T>(kLowest);
  if (value >= kBeyond) return kHighest;
  return static_cast<T>(value);
}

// By a float32, in float32.
void scale_single(void* destination, const void* source, double factor, std::size_t elements) {
  float* out = static_cast<float*>(destination);
  const float* in = static_cast<const float*>(source);
  const float single_factor = static_cast<float>(factor);
  HVD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < elements; ++i) out[i] = in[i] * single_factor;
}

template <typename T>
void scale(void* destination, const void* source, double factor, std::size_t elements) {
  T* out = static_cast<T*>(destination);
  const T* in = static_cast<const T*>(source);
  if constexpr (std::is_same_v<T, float>) {
    // The product of two floats is exact in double, so that multiplying them as floats rounds once too; twice as fast.
    if (static_cast<double>(static_cast<float>(factor)) == factor) {
      scale_single(destination, source, factor, elements);
      return;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    // An average: 49 * (1.0 / 49) is less than 1 and would be truncated to 0, but 49 / 49.0 is exact.
    const double divisor = std::nearbyint(1.0 / factor);
    if (std::abs(factor) < 1.0 && 1.0 / divisor == factor) {
      HVD_INDEPENDENT_ITERATIONS
      for (std::size_t i = 0; i < elements; ++i) out[i] = truncate<T>(static_cast<double>(in[i]) / divisor);
      return;
    }
  }
  HVD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < elements; ++i) {
    const double product = static_cast<double>(in[i]) * factor;
    if constexpr (std::is_floating_point_v<T>) {
      out[i] = static_cast<T>(product);
    } else {
      out[i] = truncate<T>(product);
    }
  }
}

void widen_half(void* destination, const void* source, std::size_t elements) {
  float* out = static_cast<float*>(destination);
  const HalfBits* in = static_cast<const HalfBits*>(source);
  std::size_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= elements; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
#endif
  for (; i < elements; ++i) out[i] = half_to_float(in[i]);
}

void narrow_half(void* destination, const void* source, std::size_t elements) {
  HalfBits* out = static_cast<HalfBits*>(destination);
  const float* in = static_cast<const float*>(source);
  std::size_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= elements; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
  }
#endif
  for (; i < elements; ++i) out[i] = float_to_half(in[i]);
}

void widen_bfloat16(void* destination, const void* source, std::size_t elements) {
  float* out = static_cast<float*>(destination);
  const Bfloat16Bits* in = static_cast<const Bfloat16Bits*>(source);
  HVD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < elements; ++i) out[i] = bfloat16_to_float(in[i]);
}

void narrow_bfloat16(void* destination, const void* source, std::size_t elements) {
  Bfloat16Bits* out = static_cast<Bfloat16Bits*>(destination);
  const float* in = static_cast<const float*>(source);
  HVD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < elements; ++i) out[i] = float_to_bfloat16(in[i]);
}

template <typename T>
Kernels::Fold fold_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return fold<T, Sum>;
    case ReduceOp::min: return fold<T, Min>;
    case ReduceOp::max: return fold<T, Max>;
    case ReduceOp::product: return fold<T, Product>;
    case ReduceOp::average:
    case ReduceOp::adasum: return nullptr;
  }
  return nullptr;
}

Kernels::Fold select_fold(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::boolean:  // 0 or 1: min is "and", max is "or"
    case DType::uint8: return fold_of<std::uint8_t>(op);
    case DType::int8: return fold_of<std::int8_t>(op);
    case DType::int16: return fold_of<std::int16_t>(op);
    case DType::int32: return fold_of<std::int32_t>(op);
    case DType::int64: return fold_of<std::int64_t>(op);
    case DType::float32: return fold_of<float>(op);
    case DType::float64: return fold_of<double>(op);
    case DType::float16:
    case DType::bfloat16: return nullptr;
  }
  return nullptr;
}

Kernels::Scale select_scale(DType dtype) {
  switch (dtype) {
    case DType::uint8: return scale<std::uint8_t>;
    case DType::int8: return scale<std::int8_t>;
    case DType::int16: return scale<std::int16_t>;
    case DType::int32: return scale<std::int32_t>;
    case DType::int64: return scale<std::int64_t>;
    case DType::float32: return scale<float>;
    case DType::float64: return scale<double>;
    case DType::float16:
    case DType::bfloat16: return scale_single;
    case DType::boolean: return nullptr;
  }
  return nullptr;
}

Kernels::Convert select_widen(DType dtype) {
  if (dtype == DType::float16) return widen_half;
  return dtype == DType::bfloat16 ? widen_bfloat16 : nullptr;
}

Kernels::Convert select_narrow(DType dtype) {
  if (dtype == DType::float16) return narrow_half;
  return dtype == DType::bfloat16 ? narrow_bfloat16 : nullptr;
}

}  // namespace

constinit const Kernels HVD_KERNELS{
    .fold = select_fold, .scale = select_scale, .widen = select_widen, .narrow = select_narrow};

}  // namespace hvd

#include "tests/ops/reduction/wide_reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace hvd {

double HalfFormat::value_of(std::uint16_t bits) const {
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >= 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits()) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

std::uint16_t HalfFormat::nearest(double value) const {
  if (std::isnan(value)) return nan();
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (magnitude == 0.0) return sign;
  if (std::isinf(magnitude)) return sign | infinity();
  // The magnitude in units of the last place that the format has there; nearbyint() takes the even one of two.
  int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
  if (units == 2 << fraction_bits) {
    units /= 2;
    ++exponent;
  }
  if (exponent > bias) return sign | infinity();
  if (units < 1 << fraction_bits) return static_cast<std::uint16_t>(sign | units);  // denormal
  return static_cast<std::uint16_t>(sign | (exponent + bias) << fraction_bits | (units - (1 << fraction_bits)));
}

namespace {

#if __LDBL_MANT_DIG__ >= 113
using Quad = long double;
#else
__extension__ using Quad = __float128;
#endif

template <typename T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, Quad>;

// Element types: how they are read into the accumulator and written from it.
template <typename T>
struct Whole {
  using Memory = T;
  using Accumulator = T;
  static T read(T value) { return value; }
  static T write(T value) { return value; }
};

template <const HalfFormat& kFormat>
struct Half {
  using Memory = std::uint16_t;
  using Accumulator = float;
  static float read(std::uint16_t bits) { return static_cast<float>(kFormat.value_of(bits)); }
  static std::uint16_t write(float value) { return kFormat.nearest(static_cast<double>(value)); }
};

template <typename T>
T apply_op(ReduceOp op, T a, T b) {
  if (op == ReduceOp::min || op == ReduceOp::max) {
    if (a != a) return a;
    if (b != b) return b;
    return (op == ReduceOp::min ? a < b : a > b) ? a : b;
  }
  if constexpr (std::is_floating_point_v<T>) {
    const auto x = static_cast<Wider<T>>(a), y = static_cast<Wider<T>>(b);
    return static_cast<T>(op == ReduceOp::sum ? x + y : x * y);
  } else {
    __extension__ using Wide = unsigned __int128;
    const auto x = static_cast<Wide>(a), y = static_cast<Wide>(b);
    return static_cast<T>(static_cast<std::uint64_t>(op == ReduceOp::sum ? x + y : x * y));
  }
}

template <typename T>
T scale_integer(T value, double factor) {
  const double divisor = std::round(1.0 / factor);
  const bool divides = std::fabs(factor) < 1.0 && 1.0 / divisor == factor;
  const double wide = static_cast<double>(value);
  const double product = std::trunc(divides ? wide / divisor : wide * factor);
  if (std::isnan(product)) return 0;
  if (product >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (product <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(product);
}

template <typename T>
T scale(DType dtype, T value, double factor) {
  if (dtype == DType::boolean || factor == 1.0) return value;
  if constexpr (std::is_integral_v<T>) {
    return scale_integer(value, factor);
  } else if constexpr (std::is_same_v<T, double>) {
    return static_cast<double>(static_cast<Quad>(value) * static_cast<Quad>(factor));
  } else {
    if (dtype != DType::float32) factor = static_cast<double>(static_cast<float>(factor));
    return static_cast<float>(static_cast<double>(value) * factor);
  }
}

template <typename T>
T with_one_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return std::numeric_limits<T>::quiet_NaN();
  }
  return value;
}

template <typename In, typename Out>
Buffer reduce_all(const Reduction& reduction, std::span<const void* const> inputs, std::size_t elements) {
  using Accumulator = typename In::Accumulator;
  typename In::Memory raw;
  typename Out::Memory result;
  Buffer results(elements * sizeof result);
  const bool copies = inputs.size() == 1 && std::is_same_v<In, Out> &&
                      (reduction.dtype == DType::boolean || (reduction.prescale == 1.0 && reduction.postscale == 1.0));
  if (copies && elements > 0) {
    std::memcpy(results.data(), inputs[0], results.size());
    return results;
  }
  for (std::size_t i = 0; i < elements; ++i) {
    Accumulator folded{};
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      std::memcpy(&raw, static_cast<const std::byte*>(inputs[k]) + i * sizeof raw, sizeof raw);
      const Accumulator value = scale(reduction.dtype, static_cast<Accumulator>(In::read(raw)), reduction.prescale);
      folded = k == 0 ? value : apply_op(reduction.op, folded, value);
    }
    result = Out::write(with_one_nan(scale(reduction.dtype, folded, reduction.postscale)));
    std::memcpy(results.data() + i * sizeof result, &result, sizeof result);
  }
  return results;
}

template <typename Narrow>
Buffer reduce_halves(const Reduction& reduction, DType in_type, std::span<const void* const> inputs, DType out_type,
                     std::size_t elements) {
  if (in_type == DType::float32) return reduce_all<Whole<float>, Narrow>(reduction, inputs, elements);
  if (out_type == DType::float32) return reduce_all<Narrow, Whole<float>>(reduction, inputs, elements);
  return reduce_all<Narrow, Narrow>(reduction, inputs, elements);
}

template <typename T>
Buffer reduce_whole(const Reduction& reduction, std::span<const void* const> inputs, std::size_t elements) {
  return reduce_all<Whole<T>, Whole<T>>(reduction, inputs, elements);
}

}  // namespace

Buffer wide_reference(const Reduction& reduction, DType in_type, std::span<const void* const> inputs, DType out_type,
                      std::size_t elements) {
  const bool accumulates = in_type == DType::float32 && out_type == DType::float32;
  switch (accumulates ? DType::float32 : reduction.dtype) {
    case DType::boolean:
    case DType::uint8: return reduce_whole<std::uint8_t>(reduction, inputs, elements);
    case DType::int8: return reduce_whole<std::int8_t>(reduction, inputs, elements);
    case DType::int16: return reduce_whole<std::int16_t>(reduction, inputs, elements);
    case DType::int32: return reduce_whole<std::int32_t>(reduction, inputs, elements);
    case DType::int64: return reduce_whole<std::int64_t>(reduction, inputs, elements);
    case DType::float16: return reduce_halves<Half<kFloat16>>(reduction, in_type, inputs, out_type, elements);
    case DType::bfloat16: return reduce_halves<Half<kBfloat16>>(reduction, in_type, inputs, out_type, elements);
    case DType::float32: return reduce_whole<float>(reduction, inputs, elements);
    case DType::float64: return reduce_whole<double>(reduction, inputs, elements);
    case DType::uint16:
    case DType::uint32:
    case DType::uint64: break;
  }
  return {};
}

}  // namespace hvd

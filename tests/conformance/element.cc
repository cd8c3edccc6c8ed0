#include "tests/conformance/element.h"

#include <algorithm>

namespace hvd::testing {

namespace {

// Conversions of their own, so that the library's are not checked against themselves. Finite values, round to even.
std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Through the definition: sign, exponent, 10 bits of mantissa.
std::uint16_t to_float16(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 11, -24));
  const auto steps = static_cast<std::int64_t>(std::nearbyint(std::fabs(value) / unit));
  const int biased = std::max(exponent - 11, -24) + 24;  // 0: subnormal and smallest normal binade
  const auto magnitude =
      static_cast<std::uint16_t>(biased == 0 ? steps : (steps - 1024) + (std::int64_t{biased + 1} << 10));
  return static_cast<std::uint16_t>(magnitude | (value < 0 ? 0x8000 : 0));
}

double from_float16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <typename T>
void put(std::byte* data, std::int64_t index, T value) {
  std::memcpy(data + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
T get(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

bool is_integer(DType dtype) { return dtype <= DType::int64; }

double wrap(DType dtype, double value) {
  std::byte cell[8];
  put_element(dtype, cell, 0, value);
  return get_element(dtype, cell, 0);
}

}  // namespace

void put_element(DType dtype, std::byte* data, std::int64_t index, double value) {
  const auto whole = static_cast<std::int64_t>(std::trunc(value));
  switch (dtype) {
    case DType::uint8: return put(data, index, static_cast<std::uint8_t>(whole));
    case DType::int8: return put(data, index, static_cast<std::int8_t>(whole));
    case DType::int16: return put(data, index, static_cast<std::int16_t>(whole));
    case DType::int32: return put(data, index, static_cast<std::int32_t>(whole));
    case DType::int64: return put(data, index, whole);
    case DType::float16: return put(data, index, to_float16(static_cast<float>(value)));
    case DType::bfloat16: return put(data, index, to_bfloat16(static_cast<float>(value)));
    case DType::float32: return put(data, index, static_cast<float>(value));
    case DType::float64: return put(data, index, value);
    case DType::boolean: return put(data, index, static_cast<std::uint8_t>(value != 0));
    case DType::uint16: return put(data, index, static_cast<std::uint16_t>(whole));
    case DType::uint32: return put(data, index, static_cast<std::uint32_t>(whole));
    case DType::uint64: return put(data, index, static_cast<std::uint64_t>(whole));
  }
}

double get_element(DType dtype, const std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::uint8:
    case DType::boolean: return get<std::uint8_t>(data, index);
    case DType::int8: return get<std::int8_t>(data, index);
    case DType::int16: return get<std::int16_t>(data, index);
    case DType::int32: return get<std::int32_t>(data, index);
    case DType::int64: return static_cast<double>(get<std::int64_t>(data, index));
    case DType::float16: return from_float16(get<std::uint16_t>(data, index));
    case DType::bfloat16: return static_cast<double>(from_bfloat16(get<std::uint16_t>(data, index)));
    case DType::float32: return static_cast<double>(get<float>(data, index));
    case DType::float64: return get<double>(data, index);
    case DType::uint16: return get<std::uint16_t>(data, index);
    case DType::uint32: return get<std::uint32_t>(data, index);
    case DType::uint64: return static_cast<double>(get<std::uint64_t>(data, index));
  }
  return 0;
}

double reduce_elements(DType dtype, ReduceOp op, const std::vector<double>& values, double prescale, double postscale) {
  // Integers are scaled in double and truncated, one by one; 16-bit floats stay in float32 until the end.
  const auto scale = [&](double value, double factor) {
    if (factor == 1.0) return value;
    if (!is_integer(dtype)) return value * factor;
    const double divisor = std::round(1.0 / factor);
    return std::trunc(divisor != 0.0 && 1.0 / divisor == factor ? value / divisor : value * factor);
  };
  double result = scale(values.front(), prescale);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double next = scale(values[i], prescale);
    switch (op) {
      case ReduceOp::average:
      case ReduceOp::sum: result += next; break;
      case ReduceOp::product: result *= next; break;
      case ReduceOp::min: result = std::min(result, next); break;
      case ReduceOp::max: result = std::max(result, next); break;
      case ReduceOp::adasum: break;
    }
    if (is_integer(dtype)) result = wrap(dtype, result);
  }
  if (op == ReduceOp::average) postscale /= static_cast<double>(values.size());
  return wrap(dtype, scale(result, postscale));
}

}  // namespace hvd::testing

// Maps the element type named on the command line to a C++ type.
#pragma once

#include <concepts>
#include <cstdint>
#include <hvd.hpp>
#include <stdexcept>
#include <type_traits>

namespace hvd::bench {

// Calls body with std::type_identity<T>.
template <typename Body>
auto with_type(hvd_dtype dtype, const Body& body) {
  switch (dtype) {
    case HVD_UINT8: return body(std::type_identity<std::uint8_t>());
    case HVD_INT8: return body(std::type_identity<std::int8_t>());
    case HVD_INT16: return body(std::type_identity<std::int16_t>());
    case HVD_INT32: return body(std::type_identity<std::int32_t>());
    case HVD_INT64: return body(std::type_identity<std::int64_t>());
    case HVD_FLOAT16: return body(std::type_identity<float16>());
    case HVD_BFLOAT16: return body(std::type_identity<bfloat16>());
    case HVD_FLOAT32: return body(std::type_identity<float>());
    case HVD_FLOAT64: return body(std::type_identity<double>());
    case HVD_BOOL: return body(std::type_identity<boolean>());
    case HVD_UINT16:
    case HVD_UINT32:
    case HVD_UINT64: break;
  }
  throw std::invalid_argument("no such element type");
}

// The precision of T: integers up to 2^kDigits are exact, and numbers below 2^kExponent are finite.
template <typename T>
struct FloatFormat;
template <>
struct FloatFormat<float16> {
  static constexpr int kDigits = 11, kExponent = 16;
};
template <>
struct FloatFormat<bfloat16> {
  static constexpr int kDigits = 8, kExponent = 128;
};
template <>
struct FloatFormat<float> {
  static constexpr int kDigits = 24, kExponent = 128;
};
template <>
struct FloatFormat<double> {
  static constexpr int kDigits = 53, kExponent = 1024;
};

template <typename T>
concept Float = requires { FloatFormat<T>::kDigits; };

}  // namespace hvd::bench

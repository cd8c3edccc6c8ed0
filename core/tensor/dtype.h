// Element types. The values are part of the wire format and the C ABI (hvd.h repeats them): append only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace hvd {

enum class DType : std::uint8_t {
  uint8 = 0,
  int8 = 1,
  int16 = 2,
  int32 = 3,
  int64 = 4,
  float16 = 5,
  bfloat16 = 6,
  float32 = 7,
  float64 = 8,
  boolean = 9,  // one byte, 0 or 1
  uint16 = 10,
  uint32 = 11,
  uint64 = 12,
};

inline constexpr int kDTypeCount = 13;

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::uint8:
    case DType::int8:
    case DType::boolean: return 1;
    case DType::int16:
    case DType::uint16:
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::int32:
    case DType::uint32:
    case DType::float32: return 4;
    case DType::int64:
    case DType::uint64:
    case DType::float64: return 8;
  }
  return 0;
}

constexpr std::size_t bytes_of(std::int64_t elements, DType dtype) {
  return static_cast<std::size_t>(elements) * size_of(dtype);
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 || dtype == DType::float64;
}

// Types that allgather, broadcast and alltoall support, but reductions do not.
constexpr bool only_moves(DType dtype) {
  return dtype == DType::uint16 || dtype == DType::uint32 || dtype == DType::uint64;
}

// The type in which sums of `dtype` are accumulated: float32 for the 16-bit floats, so that a result is rounded once.
constexpr DType accumulator_of(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 ? DType::float32 : dtype;
}

constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::uint8: return "uint8";
    case DType::int8: return "int8";
    case DType::int16: return "int16";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::boolean: return "bool";
    case DType::uint16: return "uint16";
    case DType::uint32: return "uint32";
    case DType::uint64: return "uint64";
  }
  return "unknown";
}

// Converts a value from the wire or a caller: empty if out of range.
constexpr std::optional<DType> dtype_from(std::int64_t value) {
  if (value < 0 || value >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(value);
}

}  // namespace hvd

// Element types. The values are part of the wire format and the C ABI (hvd.h repeats them): append only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
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

struct DTypeInfo {
  const char* name;
  std::size_t size;  // of an element, in bytes
};
// By value.
inline constexpr DTypeInfo kDTypes[] = {{"uint8", 1},   {"int8", 1},     {"int16", 2},   {"int32", 4},   {"int64", 8},
                                        {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"bool", 1},
                                        {"uint16", 2},  {"uint32", 4},   {"uint64", 8}};
inline constexpr int kDTypeCount = std::size(kDTypes);
static_assert(kDTypeCount == static_cast<int>(DType::uint64) + 1);

// A value that is none has no bytes.
constexpr DTypeInfo info_of(DType dtype) {
  const auto value = static_cast<int>(dtype);
  return value < kDTypeCount ? kDTypes[value] : DTypeInfo{"unknown", 0};
}
constexpr std::size_t size_of(DType dtype) { return info_of(dtype).size; }
constexpr const char* dtype_name(DType dtype) { return info_of(dtype).name; }

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

// Converts a value from the wire or a caller: empty if out of range.
constexpr std::optional<DType> dtype_from(std::int64_t value) {
  if (value < 0 || value >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(value);
}

}  // namespace hvd

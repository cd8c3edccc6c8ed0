// Tensors: their element types and shapes, views of memory that belongs to others, and results that own their memory.
// Contiguous, row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hvd {

// Element types. The values are part of the wire format and the C ABI (hvd.h repeats them): append only.
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

// Dimensions of a tensor. A zero-dimensional tensor has one element.
using Shape = std::vector<std::int64_t>;

inline constexpr int kMaxDimensions = 64;

inline std::int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Elements in one row, that is, in all dimensions but the first; 1 for a vector. Requires at least one dimension.
inline std::int64_t row_elements_of(const Shape& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

// A loop: shapes are too short for memcmp to pay off.
inline bool equal_shapes(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

std::string to_string(const Shape& shape);  // "[3, 4]"

inline constexpr int kCpuDevice = -1;
// In requests, for a tensor on any device: which accelerator it is on may differ by rank.
inline constexpr int kAccelerator = 0;

// A tensor's memory, type and shape; owns nothing.
struct TensorView {
  void* data = nullptr;  // may be null if there are no elements
  DType dtype = DType::float32;
  std::span<const std::int64_t> shape;
  int device = kCpuDevice;  // kCpuDevice, or the ordinal of an accelerator
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

inline std::size_t bytes_of(const TensorView& view) {
  const auto elements = std::accumulate(view.shape.begin(), view.shape.end(), std::int64_t{1}, std::multiplies<>());
  return bytes_of(elements, view.dtype);
}

// 128-byte aligned, uninitialised; null if there are no bytes. Throws std::bad_alloc.
void* allocate_tensor_memory(std::size_t bytes);

// A result for which the caller has given no memory, or too little: the runtime allocates it, and the caller takes
// ownership.
struct OwnedTensor {
  std::unique_ptr<void, FreeMemory> memory;  // null if there are no elements, or they are on a device
  DType dtype = DType::float32;
  Shape shape;
  int device = kCpuDevice;          // or the ordinal of an accelerator
  std::shared_ptr<void> on_device;  // the memory on that accelerator

  void* data() const { return device == kCpuDevice ? memory.get() : on_device.get(); }

  // As allocate_tensor_memory().
  static OwnedTensor allocate(DType dtype, Shape shape);
};

}  // namespace hvd

// Tensors: their shapes, views of memory that belongs to others, and results that own their memory. Contiguous,
// row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/tensor/dtype.h"

namespace hvd {

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

// A tensor's memory, type and shape; owns nothing. Contiguous, row-major.
#pragma once

#include <cstddef>

#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace hvd {

inline constexpr int kCpuDevice = -1;
// In requests, for a tensor on any device: which accelerator it is on may differ by rank.
inline constexpr int kAccelerator = 0;

struct TensorView {
  void* data = nullptr;  // may be null if there are no elements
  DType dtype = DType::float32;
  Shape shape;
  int device = kCpuDevice;  // kCpuDevice, or the ordinal of an accelerator

  std::int64_t elements() const { return elements_of(shape); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
};

}  // namespace hvd

#include "core/tensor/owned_tensor.h"

#include <new>

namespace hvd {

OwnedTensor OwnedTensor::allocate(DType dtype, Shape shape) {
  OwnedTensor tensor{nullptr, dtype, std::move(shape)};
  const std::size_t bytes = static_cast<std::size_t>(elements_of(tensor.shape)) * size_of(dtype);
  if (bytes == 0) return tensor;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  tensor.memory.reset(std::aligned_alloc(kAlignment, rounded));
  if (!tensor.memory) throw std::bad_alloc();
  return tensor;
}

}  // namespace hvd

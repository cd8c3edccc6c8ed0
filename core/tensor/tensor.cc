#include "core/tensor/tensor.h"

#include <new>

namespace hvd {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void* allocate_tensor_memory(std::size_t bytes) {
  constexpr std::size_t kAlignment = 128;  // as in the arena
  if (bytes == 0) return nullptr;
  if (bytes > SIZE_MAX - kAlignment) throw std::bad_alloc();
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

OwnedTensor OwnedTensor::allocate(DType dtype, Shape shape) {
  OwnedTensor tensor{.memory = nullptr, .dtype = dtype, .shape = std::move(shape), .on_device = nullptr};
  tensor.memory.reset(allocate_tensor_memory(static_cast<std::size_t>(elements_of(tensor.shape)) * size_of(dtype)));
  return tensor;
}

}  // namespace hvd

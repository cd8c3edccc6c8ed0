// A result whose size only the runtime knows (allgather, alltoall): the runtime allocates its memory and the caller
// takes ownership.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "core/tensor/tensor_view.h"

namespace hvd {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// 64-byte aligned, uninitialised; null if there are no bytes. Throws std::bad_alloc.
void* allocate_tensor_memory(std::size_t bytes);

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

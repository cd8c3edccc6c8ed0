// A result whose size only the runtime knows (allgather, alltoall): memory that the runtime allocates and the caller
// takes over.
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
  std::unique_ptr<void, FreeMemory> memory;  // null if there are no elements, or they lie on a device
  DType dtype = DType::float32;
  Shape shape;
  int device = kCpuDevice;          // or the ordinal of an accelerator,
  std::shared_ptr<void> on_device;  // whose memory this is

  void* data() const { return device == kCpuDevice ? memory.get() : on_device.get(); }

  // As allocate_tensor_memory().
  static OwnedTensor allocate(DType dtype, Shape shape);
};

}  // namespace hvd

// A result whose size only the runtime knows (allgather, alltoall): memory that the runtime allocates and the caller
// takes over.
#pragma once

#include <cstdlib>
#include <memory>

#include "core/tensor/tensor_view.h"

namespace hvd {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

struct OwnedTensor {
  static constexpr std::size_t kAlignment = 64;

  std::unique_ptr<void, FreeMemory> memory;  // null if there are no elements
  DType dtype = DType::float32;
  Shape shape;

  // Uninitialised. Throws std::bad_alloc.
  static OwnedTensor allocate(DType dtype, Shape shape);
};

}  // namespace hvd

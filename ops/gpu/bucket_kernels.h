// The kernels of bucket.cu on one device: copy tensors into a packed buffer, and out of it, in stream order,
// and multiply each number by a factor. The packed buffer has the tensors' type, except for 16-bit integers, which are
// 32 bits wide in it.
//
// A launch takes up to 128 tensors. The device's context must be current in all functions, including the destructor.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "core/tensor/tensor.h"
#include "ops/gpu/bucket_table.h"
#include "ops/gpu/cuda_driver.h"

namespace hvd::cuda {

// The size of a packed buffer's elements, in bytes.
std::size_t packed_size_of(DType dtype);

class BucketKernels {
 public:
  // Throws Unsupported if this build has no kernels, or the error of Driver::check if the driver rejects them.
  explicit BucketKernels(std::shared_ptr<const Driver> driver);
  ~BucketKernels();
  BucketKernels(const BucketKernels&) = delete;
  BucketKernels& operator=(const BucketKernels&) = delete;

  // Offsets and elements of the pieces are in units of the buffer's type. A factor of 1 copies bytes unchanged.
  // Booleans have no factors.
  void pack(DType dtype, std::span<const BucketPiece> pieces, void* packed, double factor, Stream stream) const {
    launch(Pass::pack, dtype, pieces, packed, factor, stream);
  }
  void unpack(DType dtype, std::span<const BucketPiece> pieces, void* packed, double factor, Stream stream) const {
    launch(Pass::unpack, dtype, pieces, packed, factor, stream);
  }

 private:
  enum class Pass { pack, unpack };
  // The kernels of one pass, by the type of the numbers.
  struct Functions {
    Function bytes = nullptr;
    std::array<Function, kDTypeCount> scaled{};  // null: numbers of this type have no factors
  };

  void find(const std::string& pass, Functions& functions);
  void launch(Pass pass, DType dtype, std::span<const BucketPiece> pieces, void* packed, double factor,
              Stream stream) const;

  const std::shared_ptr<const Driver> driver_;
  Module module_ = nullptr;
  std::array<Functions, 2> functions_;  // by Pass
};

}  // namespace hvd::cuda

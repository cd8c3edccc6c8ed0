// The parameter of the kernels in bucket.cu: tensors, and their places in the packed buffer. Passed by value; a driver
// accepts 4 KB of parameters, so that nothing has to be copied to the device first.
#pragma once

#include <cstdint>

namespace hvd::cuda {

struct BucketPiece {
  void* memory;
  std::int64_t elements;
  std::int64_t offset;  // in the packed buffer, in its elements
};

struct BucketTable {
  static constexpr int kPieces = 128;

  void* packed;
  double factor;   // for each element, if the kernel scales;
  double divisor;  // 0, or the exact divisor of integers: 49 * (1.0 / 49) is less than 1
  BucketPiece pieces[kPieces];
};

static_assert(sizeof(BucketTable) <= 4096);

// The part of a table that a thread processes: every `stride`th element of a piece, from `first` on.
struct GridStride {
  int piece;
  std::int64_t first, stride;
};

}  // namespace hvd::cuda

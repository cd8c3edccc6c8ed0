// What a kernel of bucket.cu is told: tensors, and where they lie in the packed buffer. Passed by value as the kernel's
// one parameter, of which a driver takes 4 KB: nothing has to be copied to the device before.
#pragma once

#include <cstdint>

namespace hvd::cuda {

struct BucketPiece {
  void* memory;
  std::int64_t elements;
  std::int64_t offset;  // in the packed buffer, in elements of that
};

struct BucketTable {
  static constexpr int kPieces = 128;

  void* packed;
  double factor;   // of each element, where a kernel scales;
  double divisor;  // 0, or what integers are divided by instead: 49 * (1.0 / 49) is less than 1
  BucketPiece pieces[kPieces];
};

static_assert(sizeof(BucketTable) <= 4096);

}  // namespace hvd::cuda

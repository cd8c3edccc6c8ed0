// The loops of a reduction, once per instruction set. Internal to reduce.cc, which cuts a reduction into these steps.
#pragma once

#include <cstddef>

#include "core/collective/collective.h"
#include "core/tensor/dtype.h"

namespace hvd {

inline constexpr int kMaxFoldInputs = 4;

struct Kernels {
  // destination[i] = sources[0][i] op sources[1][i] op ..., from left to right, for 2 to kMaxFoldInputs sources of an
  // accumulator type. `destination` may be one of the sources.
  using Fold = void (*)(void* destination, const void* const* sources, int count, std::size_t elements);
  // destination[i] = source[i] * factor on accumulators of the type given to scale(): in double (in float32 if the
  // tensors are 16-bit floats), then rounded once (floats) or truncated and saturated (integers).
  using Scale = void (*)(void* destination, const void* source, double factor, std::size_t elements);
  using Convert = void (*)(void* destination, const void* source, std::size_t elements);

  // Null where the operation does not exist for the type; truth values are not scaled.
  Fold (*fold)(DType accumulator, ReduceOp op);
  Scale (*scale)(DType dtype);
  // Between a 16-bit float type and float32.
  Convert (*widen)(DType dtype);
  Convert (*narrow)(DType dtype);
};

extern const Kernels kKernelsBaseline;
#if HVD_KERNELS_AVX2
extern const Kernels kKernelsAvx2;  // needs AVX2 and F16C
#endif

}  // namespace hvd

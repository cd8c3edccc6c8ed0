// The loops of a reduction, once per instruction set, each as a table of functions. Internal to reduce().
//
//   kernels_scalar.cc, kernels_avx2.cc, ...   one set each: its few specific lines, and the table
//   kernel_loops.h                            loads and stores elements; operations, factors, the one NaN; the loop
//                                             around them, and the table's contents
//
// All sets are the same templates over vectors of different length. These are the compilers' vector types (attribute
// vector_size), on which +, *, < and ?: mean the same as on numbers: vectorisation does not depend on an optimiser.
//
// A source file compiled for a newer processor must not emit functions that the linker could substitute for those
// compiled for an older one. So everything in these headers has internal linkage, or is always inlined (half.h), and
// calls no inline function of the standard library.
#pragma once

#include <cstddef>

#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"

namespace hvd {

// destination[i] = postscale * (prescale * sources[0][i] op prescale * sources[1][i] op ...), from left to right.
struct Operands {
  void* destination;  // may be one of the sources
  const void* const* sources;
  std::size_t count;  // number of sources, at least one
  std::size_t elements;
  double prescale;  // both factors are exact in float32 if either type is a 16-bit float
  double postscale;
};

struct Kernels {
  using Fold = void (*)(const Operands& operands);

  // For sources of type `in` and a destination of type `out`: the same type, or one is the other's accumulator type.
  // Null if the operation does not exist. Booleans are not scaled.
  Fold (*fold)(DType in, DType out, ReduceOp op);
};

extern const Kernels kKernelsScalar;
#if HVD_KERNELS_X86
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;
#elif HVD_KERNELS_ARM
extern const Kernels kKernelsNeon;
#endif

}  // namespace hvd

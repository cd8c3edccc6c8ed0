// The reduction loops for x86-64 processors with AVX2 and F16C; CMake compiles this file for them.
#define HVD_KERNELS kKernelsAvx2
#include "ops/reduction/kernel_loops.h"

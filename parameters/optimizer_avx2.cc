// x86-64 with AVX2 and FMA; CMake compiles this file for them.
#define HVD_OPTIMIZER_KERNELS kOptimizerAvx2
#include "parameters/optimizer_loops.h"

// The reduction loops for any processor of the architecture.
#define HVD_KERNELS kKernelsBaseline
#include "ops/reduction/kernel_loops.h"

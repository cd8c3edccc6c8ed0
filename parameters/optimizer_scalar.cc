#define HVD_OPTIMIZER_KERNELS kOptimizerScalar
#include "parameters/optimizer_loops.h"

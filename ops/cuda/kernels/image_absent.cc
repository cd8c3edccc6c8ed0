#include "ops/cuda/kernels/image.h"

namespace hvd::cuda {

const void* bucket_kernel_image() { return nullptr; }

}  // namespace hvd::cuda

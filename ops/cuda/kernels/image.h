// The GPU image of bucket.cu, for cuModuleLoadData. Null if this build was made without a compiler for GPUs.
#pragma once

namespace hvd::cuda {

const void* bucket_kernel_image();

}  // namespace hvd::cuda

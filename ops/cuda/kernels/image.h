// bucket.cu, compiled for GPUs: for cuModuleLoadData. Null if this build was made without a compiler for them.
#pragma once

namespace hvd::cuda {

const void* bucket_kernel_image();

}  // namespace hvd::cuda

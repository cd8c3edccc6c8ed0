#include "ops/cuda/kernels/image.h"

// The unchanged file, followed by the zero that terminates PTX.
asm(".section .rodata\n"
    ".balign 64\n"
    "hvd_bucket_kernel_image:\n"
    ".incbin \"" HVD_KERNEL_IMAGE
    "\"\n"
    ".byte 0\n"
    ".text\n");

namespace hvd::cuda {

extern const char kBucketKernelImage[] __asm__("hvd_bucket_kernel_image") __attribute__((visibility("hidden")));

const void* bucket_kernel_image() { return kBucketKernelImage; }

}  // namespace hvd::cuda

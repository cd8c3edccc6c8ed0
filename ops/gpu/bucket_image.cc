// The GPU image of bucket.cu, for cuModuleLoadData: the unchanged file, followed by the zero that terminates PTX. Empty
// if hvd was built without a compiler for GPUs. Apart, since ccache keeps no file that embeds another.
asm(".section .rodata\n"
    ".balign 64\n"
    ".globl hvd_bucket_kernel_image\n"
    ".hidden hvd_bucket_kernel_image\n"
    "hvd_bucket_kernel_image:\n"
    ".incbin \"" HVD_KERNEL_IMAGE
    "\"\n"
    ".byte 0\n"
    ".text\n");

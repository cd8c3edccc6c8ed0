// The CUDA keywords that bucket.cu uses, for both compilers that may build it: nvcc defines them, clang without the
// CUDA Toolkit has them as builtins. (The tests' fake driver compiles bucket.cu for the host, with other definitions.)
#pragma once

#include <cstdint>

namespace hvd::cuda {

// The part of a table that a thread processes: every `stride`th element of a piece, from `first` on.
struct Share {
  int piece;
  std::int64_t first, stride;
};

}  // namespace hvd::cuda

#if !defined(HVD_KERNEL)
#if !defined(__CUDACC__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#endif
#define HVD_KERNEL extern "C" __global__
#define HVD_DEVICE __device__

namespace hvd::cuda {

HVD_DEVICE inline Share own_share() {
#if defined(__CUDACC__)
  return {static_cast<int>(blockIdx.y), std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
          std::int64_t{gridDim.x} * blockDim.x};
#else
  const std::int64_t width = __nvvm_read_ptx_sreg_ntid_x();
  return {__nvvm_read_ptx_sreg_ctaid_y(), __nvvm_read_ptx_sreg_ctaid_x() * width + __nvvm_read_ptx_sreg_tid_x(),
          __nvvm_read_ptx_sreg_nctaid_x() * width};
#endif
}

}  // namespace hvd::cuda
#endif

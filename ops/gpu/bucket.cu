// Kernels that pack the tensors of a bucket into one buffer and unpack them again: as bytes, or number by number with a
// factor. A row of blocks per tensor; neighbouring threads process neighbouring elements, and whole words of 16 bytes
// where both sides are aligned. They are limited by memory bandwidth: each reads and writes a byte once.
//
// Factors are applied as on the CPU (ops/reduction/reduce.h): in double; to 16-bit floats in float32. 16-bit integers
// are widened to 32 bits in the buffer, because NCCL does not support them.
#include "ops/gpu/bucket_table.h"
#include "ops/reduction/half.h"

// CUDA's keywords, for both compilers that may build this file: nvcc defines them, clang without the CUDA Toolkit has
// them as builtins. (The tests' fake driver compiles it for the host, with other definitions.)
#if !defined(HVD_KERNEL)
#if !defined(__CUDACC__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#endif
#define HVD_KERNEL extern "C" __global__
#define HVD_DEVICE __device__

namespace hvd::cuda {

HVD_DEVICE inline GridStride grid_stride() {
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

namespace hvd::cuda {
namespace {

struct alignas(16) Words {
  std::uint64_t low, high;
};

struct Half {
  HalfBits bits;
};
struct Bfloat16 {
  Bfloat16Bits bits;
};

template <typename T>
HVD_DEVICE T scaled(T value, const BucketTable& table) {
  const auto number = static_cast<double>(value);
  return truncate<T>(table.divisor != 0 ? number / table.divisor : number * table.factor);
}
HVD_DEVICE float scaled(float value, const BucketTable& table) {
  return static_cast<float>(static_cast<double>(value) * table.factor);
}
HVD_DEVICE double scaled(double value, const BucketTable& table) { return value * table.factor; }
HVD_DEVICE Half scaled(Half value, const BucketTable& table) {
  return {float_to_half(half_to_float(value.bits) * static_cast<float>(table.factor))};
}
HVD_DEVICE Bfloat16 scaled(Bfloat16 value, const BucketTable& table) {
  return {float_to_bfloat16(bfloat16_to_float(value.bits) * static_cast<float>(table.factor))};
}

// `T`: type of the tensors; `Packed`: type of the buffer.
template <typename T, typename Packed>
HVD_DEVICE void pack(const BucketTable& table) {
  const GridStride grid = grid_stride();
  const BucketPiece& piece = table.pieces[grid.piece];
  const T* const from = static_cast<const T*>(piece.memory);
  Packed* const to = static_cast<Packed*>(table.packed) + piece.offset;
  for (std::int64_t i = grid.first; i < piece.elements; i += grid.stride) {
    to[i] = static_cast<Packed>(scaled(from[i], table));
  }
}

template <typename T, typename Packed>
HVD_DEVICE void unpack(const BucketTable& table) {
  const GridStride grid = grid_stride();
  const BucketPiece& piece = table.pieces[grid.piece];
  const Packed* const from = static_cast<const Packed*>(table.packed) + piece.offset;
  T* const to = static_cast<T*>(piece.memory);
  for (std::int64_t i = grid.first; i < piece.elements; i += grid.stride) {
    to[i] = scaled(static_cast<T>(from[i]), table);
  }
}

HVD_DEVICE void copy(std::uint8_t* to, const std::uint8_t* from, std::int64_t bytes, const GridStride& grid) {
  std::int64_t done = 0;
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % sizeof(Words) == 0) {
    const std::int64_t words = bytes / static_cast<std::int64_t>(sizeof(Words));
    for (std::int64_t i = grid.first; i < words; i += grid.stride) {
      reinterpret_cast<Words*>(to)[i] = reinterpret_cast<const Words*>(from)[i];
    }
    done = words * static_cast<std::int64_t>(sizeof(Words));
  }
  for (std::int64_t i = done + grid.first; i < bytes; i += grid.stride) to[i] = from[i];
}

}  // namespace

// Elements and offsets of the table are in bytes.
HVD_KERNEL void hvd_pack_bytes(BucketTable table) {
  const GridStride grid = grid_stride();
  const BucketPiece& piece = table.pieces[grid.piece];
  copy(static_cast<std::uint8_t*>(table.packed) + piece.offset, static_cast<const std::uint8_t*>(piece.memory),
       piece.elements, grid);
}
HVD_KERNEL void hvd_unpack_bytes(BucketTable table) {
  const GridStride grid = grid_stride();
  const BucketPiece& piece = table.pieces[grid.piece];
  copy(static_cast<std::uint8_t*>(piece.memory), static_cast<const std::uint8_t*>(table.packed) + piece.offset,
       piece.elements, grid);
}

#define HVD_KERNELS_OF(name, T, Packed)                                          \
  HVD_KERNEL void hvd_pack_##name(BucketTable table) { pack<T, Packed>(table); } \
  HVD_KERNEL void hvd_unpack_##name(BucketTable table) { unpack<T, Packed>(table); }

HVD_KERNELS_OF(uint8, std::uint8_t, std::uint8_t)
HVD_KERNELS_OF(int8, std::int8_t, std::int8_t)
HVD_KERNELS_OF(int16, std::int16_t, std::int32_t)
HVD_KERNELS_OF(int32, std::int32_t, std::int32_t)
HVD_KERNELS_OF(int64, std::int64_t, std::int64_t)
HVD_KERNELS_OF(float16, Half, Half)
HVD_KERNELS_OF(bfloat16, Bfloat16, Bfloat16)
HVD_KERNELS_OF(float32, float, float)
HVD_KERNELS_OF(float64, double, double)

}  // namespace hvd::cuda

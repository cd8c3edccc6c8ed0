// x86-64 with AVX2 and F16C; CMake compiles this file for them.
#define HVD_KERNELS kKernelsAvx2
#include <immintrin.h>

#include <cstddef>

#include "ops/reduction/half.h"

namespace hvd {
namespace {

constexpr std::size_t kRegisterBytes = 32;

__m256 load_float16(const HalfBits* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

void store_float16(HalfBits* to, __m256 values) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

__m128 multiply_in_double(__m128 values, __m256d factor) {
  return _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(values), factor));
}

__m256 multiply_in_double(__m256 values, double factor) {
  const __m256d factors = _mm256_set1_pd(factor);
  return _mm256_set_m128(multiply_in_double(_mm256_extractf128_ps(values, 1), factors),
                         multiply_in_double(_mm256_castps256_ps128(values), factors));
}

}  // namespace
}  // namespace hvd

#include "ops/reduction/kernel_loops.h"

// x86-64 with AVX-512 F, BW, DQ and VL; CMake compiles this file for them.
#define HVD_KERNELS kKernelsAvx512
#include <immintrin.h>

#include <cstddef>

#include "ops/reduction/half.h"

namespace hvd {
namespace {

constexpr std::size_t kRegisterBytes = 64;

__m512 load_float16(const HalfBits* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

void store_float16(HalfBits* to, __m512 values) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

__m256 multiply_in_double(__m256 values, __m512d factor) {
  return _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtps_pd(values), factor));
}

__m512 multiply_in_double(__m512 values, double factor) {
  const __m512d factors = _mm512_set1_pd(factor);
  const __m256 lower = multiply_in_double(_mm512_castps512_ps256(values), factors);
  const __m256 upper = multiply_in_double(_mm512_extractf32x8_ps(values, 1), factors);
  return _mm512_insertf32x8(_mm512_castps256_ps512(lower), upper, 1);
}

}  // namespace
}  // namespace hvd

#include "ops/reduction/kernel_loops.h"

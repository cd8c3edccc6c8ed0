// AArch64, whose processors all have NEON.
#define HVD_KERNELS kKernelsNeon
#include <arm_neon.h>

#include <cstddef>

#include "ops/reduction/half.h"

namespace hvd {
namespace {

constexpr std::size_t kRegisterBytes = 16;

float32x4_t load_float16(const HalfBits* from) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))); }

void store_float16(HalfBits* to, float32x4_t values) { vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(values))); }

float32x4_t multiply_in_double(float32x4_t values, double factor) {
  const float64x2_t lower = vmulq_n_f64(vcvt_f64_f32(vget_low_f32(values)), factor);
  const float64x2_t upper = vmulq_n_f64(vcvt_high_f64_f32(values), factor);
  return vcvt_high_f32_f64(vcvt_f32_f64(lower), upper);
}

}  // namespace
}  // namespace hvd

#include "ops/reduction/kernel_loops.h"

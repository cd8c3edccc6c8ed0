// Plain loops, one number at a time, for any processor. The fallback, and the reference for the other sets; CMake
// prevents the compiler from vectorising them.
#define HVD_KERNELS kKernelsScalar
#include <cstddef>

#include "ops/reduction/half.h"

namespace hvd {
namespace {

constexpr std::size_t kRegisterBytes = 0;

float load_float16(const HalfBits* from) { return half_to_float(*from); }
void store_float16(HalfBits* to, float value) { *to = float_to_half(value); }
float multiply_in_double(float value, double factor) { return static_cast<float>(static_cast<double>(value) * factor); }

}  // namespace
}  // namespace hvd

#include "ops/reduction/kernel_loops.h"

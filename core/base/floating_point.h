// Sets the default floating-point environment (round to nearest, denormals kept) for a scope, whatever the program has
// set, because sums must have the same bits on every rank and every thread. Costs a few nanoseconds if nothing changes.
#pragma once

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hvd {

class DefaultFloatingPoint {
 public:
#if defined(__x86_64__)
  // hvd computes with SSE and AVX only, which use only this register. Its low bits are flags, not settings.
  DefaultFloatingPoint() : saved_(_mm_getcsr()) {
    if ((saved_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatingPoint() {
    if ((saved_ & ~kFlags) != kDefault) _mm_setcsr(saved_);
  }
#else
  DefaultFloatingPoint() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
#endif
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kFlags = 0x3f, kDefault = 0x1f80;
  const unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace hvd

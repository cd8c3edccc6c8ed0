// libhvd_tensorflow.so over the fake TensorFlow, in a job of one.
#pragma once

#include <dlfcn.h>

#include <string>

#include "include/hvd.h"
#include "tests/support/built.h"
#include "tests/support/catch.h"
#include "tests/support/fake_tensorflow/fake_tensorflow.h"

namespace hvd::testing {

// Loads the library, once; what it says is wrong.
inline std::string load_ops() {
  static void* const library = dlopen(built::tensorflow, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  return reinterpret_cast<const char* (*)()>(dlsym(library, "hvd_tensorflow_problem"))();
}

// At its end nothing may be left of what TensorFlow lent.
class Job {
 public:
  Job() {
    REQUIRE(load_ops().empty());
    REQUIRE(hvd_init() == HVD_OK);
  }
  ~Job() {
    hvd_shutdown();
    nothing_fails();
    CHECK(Counted::live == 0);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
};

inline Attributes reduction(std::int32_t op, double prescale = 1, double postscale = 1) {
  return {{"reduce_op", number(op)}, {"prescale_bits", bits(prescale)}, {"postscale_bits", bits(postscale)}};
}

}  // namespace hvd::testing

// A job of one, by the C interface, that finds the fake GPU.
#pragma once

#include <cstdlib>

#include "include/hvd.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu.h"

namespace hvd::testing {

struct GpuJob {
  GpuJob() {
    for (const auto& [name, value] : FakeGpu::environment()) setenv(name.c_str(), value.c_str(), 1);
    REQUIRE(hvd_init() == HVD_OK);
  }
  ~GpuJob() {
    hvd_shutdown();
    for (const auto& [name, value] : FakeGpu::environment()) unsetenv(name.c_str());
  }
};

}  // namespace hvd::testing

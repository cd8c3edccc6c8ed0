// A job of one that finds the fake GPU, which TensorFlow has, too.
#pragma once

#include <cstdlib>
#include <memory>

#include "tests/bindings/tensorflow/job.h"
#include "tests/support/fake_gpu.h"

namespace hvd::testing {

class GpuJob {
 public:
  static constexpr int kDevice = 2;

  explicit GpuJob(const FakeGpu& gpu, Environment environment = FakeGpu::environment())
      : environment_(std::move(environment)) {
    set_gpu({kDevice, [&gpu](std::size_t bytes) -> std::shared_ptr<void> {
               auto block = std::make_shared<FakeGpu::Block>(gpu, kDevice, bytes);
               return {block, block->data()};
             }});
    for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
    job_ = std::make_unique<Job>();
  }
  ~GpuJob() {
    job_.reset();
    set_gpu({});
    for (const auto& [name, value] : environment_) unsetenv(name.c_str());
  }
  GpuJob(const GpuJob&) = delete;
  GpuJob& operator=(const GpuJob&) = delete;

 private:
  const Environment environment_;
  std::unique_ptr<Job> job_;
};

}  // namespace hvd::testing

// Ranks with tensors on fake GPUs, for the tests of this folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/failure.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

// Float32 on a rank's device.
class GpuTensor {
 public:
  GpuTensor(const FakeGpu& gpu, const Runtime& runtime, std::vector<float> values);

  TensorArgument view() const;
  float* data() const { return reinterpret_cast<float*>(block_.data()); }
  std::vector<float> values() const { return {data(), data() + count_}; }

 private:
  int device_;
  std::size_t count_;
  FakeGpu::Block block_;
};

// An allreduce in place.
CallArguments allreduce_of(const GpuTensor& tensor, const std::string& name, void* stream = nullptr);

// On one host, with the fakes; rank r has device r.
// `environment` goes before the fakes' own; `change_for`: as RunOptions'.
void run_gpu_ranks(int ranks, const std::function<void(Runtime&)>& body, Environment environment = {},
                   const std::function<void(int rank, Environment& environment)>& change_for = nullptr);

}  // namespace hvd::testing

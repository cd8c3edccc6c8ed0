// What is behind the C API's handles.
#pragma once

#include "tests/support/fake_tensorflow/fake_tensorflow.h"

namespace hvd::tf {

struct Status : testing::Counted {
  Code code = Code::ok;
  std::string message;
};

struct Tensor : testing::Counted {
  testing::FakeTensor value;
};

struct ShapeHandle : testing::Counted {
  std::optional<testing::Dims> dims;
};

struct OpDefinitionBuilder : testing::Counted {
  std::string name;
  testing::FakeOp op;
};

struct KernelBuilder : testing::Counted {
  std::string op, device;
  testing::FakeKernel kernel;
};

struct ShapeInferenceContext {
  std::vector<std::optional<testing::Dims>> inputs, outputs;
};

struct OpKernelConstruction {
  const testing::Attributes& attributes;
  const std::string& name;
  std::string problem{};
};

struct OpKernelContext {
  const testing::FakeNode& node;
  std::vector<testing::FakeTensor> inputs;
  std::vector<std::optional<testing::FakeTensor>> outputs{};
  std::vector<std::vector<std::byte>> read{};  // outputs when the kernel was through
  Code code = Code::ok;
  std::string message{};
  std::mutex mutex{};
  std::condition_variable changed{};
  bool through = false;  // guarded by mutex
  std::thread::id ended_on{};
};

}  // namespace hvd::tf

namespace hvd::testing {

int gpu_number();
// Whether the function is to fail now, and then `status` says so; else it is ok.
bool fails(const char* function, tf::Status* status);
// Ends the process.
[[noreturn]] void misused(const std::string& how);

}  // namespace hvd::testing

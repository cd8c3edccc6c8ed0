#include "tests/ops/gpu/gpu_ranks.h"

#include <algorithm>

namespace hvd::testing {

GpuTensor::GpuTensor(const FakeGpu& gpu, const Runtime& runtime, std::vector<float> values)
    : device_(runtime.topology().rank),
      count_(values.size()),
      block_(gpu, device_, std::max<std::size_t>(1, values.size()) * sizeof(float)) {
  std::copy(values.begin(), values.end(), data());
}

TensorArgument GpuTensor::view() const {
  return {
      .data = block_.data(), .dtype = DType::float32, .shape = {static_cast<std::int64_t>(count_)}, .device = device_};
}

CallArguments allreduce_of(const GpuTensor& tensor, const std::string& name, void* stream) {
  CallArguments call{.name = name, .stream = stream};
  call.inputs = call.outputs = {tensor.view()};
  return call;
}

void run_gpu_ranks(int ranks, const std::function<void(Runtime&)>& body, Environment environment,
                   const std::function<void(int rank, Environment& environment)>& change_for) {
  RunOptions options;
  options.layout.ranks_by_host = {ranks};
  options.environment = std::move(environment);
  options.environment.merge(FakeGpu::environment());
  options.change_for = change_for;
  run_ranks(options, body);
}

}  // namespace hvd::testing

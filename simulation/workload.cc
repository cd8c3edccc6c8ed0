#include "simulation/workload.h"

#include <array>
#include <string>

namespace hvd::simulation {

namespace {

constexpr std::int64_t kWidth = 1024;

struct Parameter {
  const char* name;
  Shape shape;
};

// The parameters of one layer, in the order in which backward produces their gradients.
std::array<Parameter, 12> layer() {
  return {{{"mlp.c_proj.bias", {kWidth}},
           {"mlp.c_proj.weight", {kWidth, 4 * kWidth}},
           {"mlp.c_fc.bias", {4 * kWidth}},
           {"mlp.c_fc.weight", {4 * kWidth, kWidth}},
           {"ln_2.bias", {kWidth}},
           {"ln_2.weight", {kWidth}},
           {"attn.c_proj.bias", {kWidth}},
           {"attn.c_proj.weight", {kWidth, kWidth}},
           {"attn.c_attn.bias", {3 * kWidth}},
           {"attn.c_attn.weight", {3 * kWidth, kWidth}},
           {"ln_1.bias", {kWidth}},
           {"ln_1.weight", {kWidth}}}};
}

}  // namespace

std::vector<OperationSpec> gradients(int count) {
  const auto parameters = layer();
  const int per_layer = static_cast<int>(parameters.size());
  std::vector<OperationSpec> specs;
  for (int i = 0; i < count; ++i) {
    const Parameter& parameter = parameters[static_cast<std::size_t>(i % per_layer)];
    const int number = (count - 1 - i) / per_layer;
    OperationSpec spec;
    spec.name = "optimizer0.transformer.h." + std::to_string(number) + "." + parameter.name;
    spec.op = ReduceOp::average;
    spec.tensors = {{DType::float32, parameter.shape}};
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace hvd::simulation

// Owns the arguments of a Call, which only refers to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/operation/call.h"
#include "core/tensor/tensor.h"

namespace hvd::testing {

struct TensorArgument {
  void* data = nullptr;
  DType dtype = DType::float32;
  Shape shape{};
  int device = kCpuDevice;
};

struct CallArguments {
  Collective collective = Collective::allreduce;
  std::int32_t process_set = kGlobalProcessSet;
  std::string name{};
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::int32_t priority = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<TensorArgument> inputs{};
  std::vector<TensorArgument> outputs{};
  std::vector<std::int64_t> splits{};
  void* stream = nullptr;
  mutable std::vector<TensorView> views{};  // of the last Call

  // Valid until this object is changed or called for again.
  operator Call() const {
    views.clear();
    for (const auto* tensors : {&inputs, &outputs}) {
      for (const TensorArgument& tensor : *tensors) {
        views.push_back({.data = tensor.data, .dtype = tensor.dtype, .shape = tensor.shape, .device = tensor.device});
      }
    }
    const std::span<const TensorView> all = views;
    return {.collective = collective,
            .process_set = process_set,
            .name = name,
            .op = op,
            .root = root,
            .priority = priority,
            .prescale = prescale,
            .postscale = postscale,
            .inputs = all.first(inputs.size()),
            .outputs = all.subspan(inputs.size()),
            .splits = splits,
            .stream = stream};
  }
};

}  // namespace hvd::testing

// An operation on one tensor in CPU memory, as passed by the caller: views of the caller's memory. A schedule or a name
// table that has seen the same operation before recognises it, and needs only the addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/operation/request.h"
#include "core/tensor/tensor.h"

namespace hvd {

struct DirectCall {
  Collective collective = Collective::allreduce;  // or broadcast: those whose output is like the input
  std::int32_t process_set = kGlobalProcessSet;
  std::string_view name;  // empty: none
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = 0;
  std::int32_t priority = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  DType dtype = DType::float32;
  std::span<const std::int64_t> shape;
  const void* input = nullptr;  // neither is null
  void* output = nullptr;

  // Whether it equals the request, except for the name.
  bool asks_for(const Request& request) const {
    if (request.collective != collective || request.tensors.size() != 1 || request.priority != priority) return false;
    if (request.device != kCpuDevice) return false;
    const TensorSpec& tensor = request.tensors.front();
    return tensor.dtype == dtype && has_shape(tensor) &&
           (collective == Collective::broadcast
                ? request.root == root
                : request.op == op && request.prescale == prescale && request.postscale == postscale);
  }

 private:
  // A loop: shapes are too short for memcmp to pay off.
  bool has_shape(const TensorSpec& tensor) const {
    if (tensor.shape.size() != shape.size()) return false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (tensor.shape[i] != shape[i]) return false;
    }
    return true;
  }
};

}  // namespace hvd

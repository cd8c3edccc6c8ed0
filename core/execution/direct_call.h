// An operation on one tensor in the caller's memory, whose caller waits for it, and what a locked schedule has prepared
// for it: nothing but the addresses is to be filled in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/collective/collective_call.h"
#include "core/execution/backend.h"
#include "core/submission/request.h"

namespace hvd {

// As the caller gives it; views of the caller's memory.
struct DirectCall {
  Collective collective = Collective::allreduce;  // or broadcast: those whose output is like the input
  std::int32_t process_set = kGlobalProcessSet;
  std::string_view name;  // empty: none
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  DType dtype = DType::float32;
  std::span<const std::int64_t> shape;
  const void* input = nullptr;
  void* output = nullptr;
};

struct PreparedCall {
  const Request* request = nullptr;  // null: this stage cannot be performed directly
  Backend* backend = nullptr;
  CollectiveCall call;
  std::int64_t bytes = 0;

  // But for the name.
  bool fits(const DirectCall& direct) const {
    if (request == nullptr || request->collective != direct.collective) return false;
    const TensorSpec& tensor = request->tensors.front();
    return tensor.dtype == direct.dtype && std::ranges::equal(tensor.shape, direct.shape) &&
           (direct.collective == Collective::broadcast
                ? request->root == direct.root
                : request->op == direct.op && request->prescale == direct.prescale &&
                      request->postscale == direct.postscale);
  }
};

}  // namespace hvd

// What can be known to be wrong with a call before any other rank hears of it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/collective/process_set.h"
#include "core/submission/request.h"
#include "core/tensor/tensor_view.h"

namespace hvd {

// A call as the caller gives it.
struct Call {
  Collective collective = Collective::allreduce;
  std::int32_t process_set = kGlobalProcessSet;
  std::string name{};  // empty: the runtime makes one up
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::int32_t priority = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<TensorView> inputs{};
  std::vector<TensorView> outputs{};   // empty: the runtime allocates them, where the collective allows
  std::vector<std::int64_t> splits{};  // alltoall; empty: even
  void* stream = nullptr;  // of the tensors' device: what is in it by now comes first. Null: its default stream
};

// The request that this call stands for, without a name. Throws InvalidArgument or Unsupported that says what to do.
Request check_call(const Call& call, const ProcessSet& set, int rank);

}  // namespace hvd

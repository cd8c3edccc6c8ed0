// Checks a call for errors that this rank can find alone, before any other rank receives it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/operation/request.h"
#include "core/tensor/process_set.h"
#include "core/tensor/tensor.h"

namespace hvd {

// A call of a collective with the caller's arguments.
struct Call {
  Collective collective = Collective::allreduce;
  std::int32_t process_set = kGlobalProcessSet;
  std::string name{};  // empty: the runtime generates one
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::int32_t priority = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<TensorView> inputs{};
  std::vector<TensorView> outputs{};   // empty: the runtime allocates them, if the collective allows it
  std::vector<std::int64_t> splits{};  // alltoall; empty: even
  void* stream = nullptr;  // of the tensors' device: its current work precedes the operation. Null: the default stream
};

// The request for this call, without a name. Throws InvalidArgument or Unsupported that says how to fix it.
Request check_call(const Call& call, const ProcessSet& set, int rank);

}  // namespace hvd

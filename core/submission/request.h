// "I am ready for X": what one rank tells the coordinator of one submission.
//
// Plain values. Two ranks agree on an operation if their requests are equal except for what may differ by rank: the
// first dimension in allgather and alltoall, and the splits of alltoall.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/collective/collective.h"
#include "core/collective/process_set.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace hvd {

struct TensorSpec {
  DType dtype = DType::float32;
  Shape shape;
  bool operator==(const TensorSpec&) const = default;
};

struct Request {
  std::int32_t process_set = kGlobalProcessSet;
  std::string name;  // unique among a set's operations in flight
  Collective collective = Collective::allreduce;
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = 0;  // broadcast: global rank
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t device = -1;          // kCpuDevice or "some accelerator" (0)
  std::vector<TensorSpec> tensors;   // more than one: a group
  std::vector<std::int64_t> splits;  // alltoall: rows for each rank of the set; always filled in

  bool operator==(const Request&) const = default;
};

}  // namespace hvd

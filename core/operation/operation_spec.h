// What an operation is: a plain value, the same from the check of the caller's call (call.h) to the wire, by which
// ranks tell each other what they have submitted.
//
// Two ranks agree on an operation if their specs are equal except for what may differ by rank: the first dimension in
// allgather and alltoall, and the splits of alltoall.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/tensor/collective.h"
#include "core/tensor/dtype.h"
#include "core/tensor/process_set.h"
#include "core/tensor/tensor.h"

namespace hvd {

struct TensorSpec {
  DType dtype = DType::float32;
  Shape shape;
  bool operator==(const TensorSpec&) const = default;
};

struct OperationSpec {
  std::int32_t process_set = kGlobalProcessSet;
  std::string name;  // unique among a set's operations in flight
  Collective collective = Collective::allreduce;
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = 0;  // broadcast: global rank
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t priority = 0;         // the highest ready operation goes first; may differ by rank: one rank's counts
  std::int32_t device = -1;          // kCpuDevice or kAccelerator
  std::vector<TensorSpec> tensors;   // more than one: a grouped operation
  std::vector<std::int64_t> splits;  // alltoall: rows for each rank of the set; never empty

  bool operator==(const OperationSpec&) const = default;
};

// Of all tensors, at most 2^63 - 1.
inline std::int64_t bytes_of(const OperationSpec& spec) {
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : spec.tensors) {
    const auto size = static_cast<std::int64_t>(bytes_of(elements_of(tensor.shape), tensor.dtype));
    if (__builtin_add_overflow(bytes, size, &bytes)) return std::numeric_limits<std::int64_t>::max();
  }
  return bytes;
}

}  // namespace hvd

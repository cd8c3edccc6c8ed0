// A call of a collective as the caller makes it: views of the caller's memory, valid until the call returns. What it
// asks for becomes an operation, or repeats one that is known.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/operation/operation_spec.h"
#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"

namespace hvd {

struct Call {
  Collective collective = Collective::allreduce;
  std::int32_t process_set = kGlobalProcessSet;
  std::string_view name{};  // empty: the runtime generates one
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = 0;  // broadcast: rank of the job
  std::int32_t priority = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::span<const TensorView> inputs{};
  std::span<const TensorView> outputs{};   // empty: the runtime allocates them, if the collective allows it
  std::span<const std::int64_t> splits{};  // alltoall; empty: even
  void* stream = nullptr;  // of the tensors' device: its current work precedes the operation. Null: the default stream
  // The outputs are known to have the inputs' dtypes, shapes and device: so nobody needs to compare them again.
  bool outputs_are_like_inputs = false;

  // Whether it asks for the operation that `spec` describes, except for the name. Such an operation has been checked
  // before, and needs only the addresses. Requires is_repeatable(spec).
  bool repeats(const OperationSpec& spec) const {
    if (inputs.size() != 1 || outputs.size() != 1 || !splits.empty()) return false;
    if (spec.collective != collective || spec.priority != priority) return false;
    const TensorView& input = inputs.front();
    const TensorView& output = outputs.front();
    if (input.data == nullptr || output.data == nullptr || !is_like(input, spec.tensors.front())) return false;
    if (!outputs_are_like_inputs && !is_like(output, spec.tensors.front())) return false;
    if (collective == Collective::broadcast) return spec.root == root;
    return spec.op == op && spec.prescale == prescale && spec.postscale == postscale;
  }

 private:
  static bool is_like(const TensorView& tensor, const TensorSpec& spec) {
    return tensor.device == kCpuDevice && tensor.dtype == spec.dtype && equal_shapes(tensor.shape, spec.shape);
  }
};

// Whether calls for this operation can be recognised by Call::repeats(): it is decided once, when the operation is new.
bool is_repeatable(const OperationSpec& spec);

// The same call in the numbering of the set's ranks. Throws InvalidArgument if its root is not in the set.
Call in_numbering_of(const ProcessSet& set, Call call);

// What the call asks for, without a name. `set` and `rank` are numbered as the call's root is. Throws InvalidArgument
// or Unsupported that says how to fix a call that this rank alone knows to be wrong. Pure.
OperationSpec check_call(const Call& call, const ProcessSet& set, int rank);

}  // namespace hvd

#include "core/operation/call.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/operation/collective_call.h"

namespace hvd {

namespace {

std::string text_of(std::span<const std::int64_t> numbers) { return to_string(Shape(numbers.begin(), numbers.end())); }

void check_tensor(const TensorView& tensor, const char* role) {
  if (tensor.device < kCpuDevice) {
    throw InvalidArgument(std::string(role) + " lies on device " + std::to_string(tensor.device) +
                          "; there is -1, the CPU, and accelerators from 0");
  }
  if (tensor.shape.size() > static_cast<std::size_t>(kMaxDimensions)) {
    throw InvalidArgument(std::string(role) + " has " + std::to_string(tensor.shape.size()) + " dimensions; at most " +
                          std::to_string(kMaxDimensions) + " are possible");
  }
  std::int64_t bytes = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension < 0) throw InvalidArgument(std::string(role) + " has a negative dimension " + text_of(tensor.shape));
    // As the decoder of the request does, which refuses what no rank can have (control/protocol/wire.cc).
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(dimension, 1), &bytes)) {
      throw InvalidArgument(std::string(role) + " of shape " + text_of(tensor.shape) + " is larger than memory");
    }
  }
  const bool is_empty = std::ranges::find(tensor.shape, 0) != tensor.shape.end();
  if (tensor.data == nullptr && !is_empty) throw InvalidArgument(std::string(role) + " has elements but no memory");
}

void check_reduce_op(const Call& call) {
  if (call.collective != Collective::allreduce && call.collective != Collective::reducescatter) return;
  if (call.op == ReduceOp::adasum && call.collective == Collective::reducescatter) {
    throw InvalidArgument("reducescatter cannot reduce with adasum, only allreduce can");
  }
  for (const TensorView& tensor : call.inputs) {
    if (call.op == ReduceOp::adasum && !is_floating(tensor.dtype)) {
      throw InvalidArgument(std::string("adasum needs tensors of a floating-point type, not ") +
                            dtype_name(tensor.dtype));
    }
    if (only_moves(tensor.dtype)) {
      throw InvalidArgument(std::string(dtype_name(tensor.dtype)) +
                            " tensors can be gathered, broadcast and exchanged, " + "not reduced; " +
                            collective_name(call.collective) +
                            " takes uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, and bool " +
                            "with min and max");
    }
    if (tensor.dtype == DType::boolean && call.op != ReduceOp::min && call.op != ReduceOp::max) {
      throw InvalidArgument(std::string("bool tensors can be reduced with min and max only, not with ") +
                            reduce_op_name(call.op));
    }
  }
}

// Rows for each rank of the set, as given by the caller or in equal parts.
std::vector<std::int64_t> alltoall_splits(const Call& call, const ProcessSet& set) {
  const std::span<const std::int64_t> shape = call.inputs.front().shape;
  if (set.size() > kMaxAlltoallRanks) {
    throw Unsupported("an alltoall of " + std::to_string(set.size()) + " ranks; at most " +
                      std::to_string(kMaxAlltoallRanks) + " are possible");
  }
  if (call.splits.empty()) {
    if (shape[0] % set.size() != 0) {
      throw InvalidArgument("alltoall without splits needs a first dimension that is a multiple of the " +
                            std::to_string(set.size()) + " ranks, not " + std::to_string(shape[0]));
    }
    return std::vector<std::int64_t>(static_cast<std::size_t>(set.size()), shape[0] / set.size());
  }
  if (call.splits.size() != static_cast<std::size_t>(set.size())) {
    throw InvalidArgument("alltoall needs one split for each of the " + std::to_string(set.size()) + " ranks, not " +
                          std::to_string(call.splits.size()));
  }
  std::int64_t rows = 0;
  for (const std::int64_t split : call.splits) {
    if (split < 0 || split > shape[0] - rows) {
      throw InvalidArgument("alltoall splits " + text_of(call.splits) + " do not fit a first dimension of " +
                            std::to_string(shape[0]));
    }
    rows += split;
  }
  return {call.splits.begin(), call.splits.end()};
}

// These collectives move rows: an output that overlaps an input would overwrite rows not yet sent.
void check_apart(const Call& call) {
  struct Extent {
    const std::byte* begin;
    const std::byte* end;
    bool is_output;
  };
  std::vector<Extent> extents;
  for (const auto tensors : {call.inputs, call.outputs}) {
    for (const TensorView& tensor : tensors) {
      const auto* const begin = static_cast<const std::byte*>(tensor.data);
      if (const std::size_t bytes = bytes_of(tensor); bytes > 0) {
        extents.push_back({begin, begin + bytes, tensors.data() == call.outputs.data()});
      }
    }
  }
  const std::less<> before;
  std::ranges::sort(extents, before, &Extent::begin);
  const std::byte* end_of_inputs = nullptr;
  const std::byte* end_of_outputs = nullptr;
  for (const Extent& extent : extents) {
    if (before(extent.begin, extent.is_output ? end_of_inputs : end_of_outputs)) {
      throw InvalidArgument(std::string(collective_name(call.collective)) + ": an output overlaps an input");
    }
    const std::byte*& end = extent.is_output ? end_of_outputs : end_of_inputs;
    end = std::max(end, extent.end, before);
  }
}

void check_outputs(const Call& call, const ProcessSet& set, int rank) {
  const bool others_decide = differs_by_rank(call.collective);
  const bool may_be_absent = others_decide || call.collective == Collective::reducescatter;
  if (call.outputs.empty() && (may_be_absent || call.inputs.empty())) return;
  if (call.outputs.size() != call.inputs.size()) {
    throw InvalidArgument("there are " + std::to_string(call.inputs.size()) + " inputs but " +
                          std::to_string(call.outputs.size()) + " outputs");
  }
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    check_tensor(call.outputs[i], "an output");
    Shape expected(call.inputs[i].shape.begin(), call.inputs[i].shape.end());
    if (call.collective == Collective::reducescatter && !expected.empty()) {
      expected[0] = even_split(expected[0], set.size())[static_cast<std::size_t>(rank)];
    }
    if (others_decide && !call.outputs[i].shape.empty()) expected[0] = call.outputs[i].shape[0];
    if (!std::ranges::equal(call.outputs[i].shape, expected) || call.outputs[i].dtype != call.inputs[i].dtype) {
      throw InvalidArgument("an output has " + std::string(dtype_name(call.outputs[i].dtype)) +
                            text_of(call.outputs[i].shape) + " where " + dtype_name(call.inputs[i].dtype) +
                            to_string(expected) + " is needed");
    }
  }
  if (may_be_absent) check_apart(call);
}

void check_devices(const Call& call) {
  for (const auto tensors : {call.inputs, call.outputs}) {
    for (const TensorView& tensor : tensors) {
      if (tensor.device == call.inputs.front().device) continue;
      throw InvalidArgument("the tensors of an operation all lie on the CPU or all on one accelerator");
    }
  }
}

void check_tensor_count(const Call& call) {
  const bool none = call.collective == Collective::barrier || call.collective == Collective::join;
  if (none != call.inputs.empty()) {
    throw InvalidArgument(std::string(collective_name(call.collective)) +
                          (none ? " takes no tensors" : " needs at least one tensor"));
  }
  if (call.collective == Collective::alltoall && call.inputs.size() != 1) {
    throw InvalidArgument("alltoall takes one tensor at a time");
  }
}

void check_rows(const Call& call) {
  const bool moves_rows = differs_by_rank(call.collective) || call.collective == Collective::reducescatter;
  if (!moves_rows) return;
  for (const TensorView& tensor : call.inputs) {
    if (!tensor.shape.empty()) continue;
    throw InvalidArgument(std::string(collective_name(call.collective)) +
                          " needs a tensor with at least one dimension");
  }
}

void check_root(const Call& call, const ProcessSet& set) {
  if (set.rank_of(call.root)) return;
  throw InvalidArgument("root rank " + std::to_string(call.root) + " is not in process set " + std::to_string(set.id) +
                        " of " + std::to_string(set.size()) + " ranks");
}

}  // namespace

bool is_repeatable(const OperationSpec& spec) {
  return spec.tensors.size() == 1 && spec.device == kCpuDevice &&
         (spec.collective == Collective::allreduce || spec.collective == Collective::broadcast);
}

Call in_numbering_of(const ProcessSet& set, Call call) {
  if (call.collective != Collective::broadcast) return call;
  check_root(call, set);
  call.root = set.rank_of(call.root).value();
  return call;
}

OperationSpec check_call(const Call& call, const ProcessSet& set, int rank) {
  if (call.name.size() > kMaxNameBytes) {
    throw InvalidArgument("a name of " + std::to_string(call.name.size()) + " bytes; at most " +
                          std::to_string(kMaxNameBytes) + " are possible");
  }
  check_tensor_count(call);
  for (const TensorView& tensor : call.inputs) check_tensor(tensor, "an input");
  check_rows(call);
  check_reduce_op(call);
  if (call.collective == Collective::broadcast) check_root(call, set);

  OperationSpec spec{
      .process_set = set.id,
      .name = {},
      .collective = call.collective,
      .op = call.op,
      .root = call.root,
      .prescale = call.prescale,
      .postscale = call.postscale,
      .priority = call.priority,
      .device = call.inputs.empty() || call.inputs.front().device == kCpuDevice ? kCpuDevice : kAccelerator,
      .tensors = {},
      .splits = {}};
  for (const TensorView& tensor : call.inputs)
    spec.tensors.push_back({tensor.dtype, Shape(tensor.shape.begin(), tensor.shape.end())});
  if (call.collective == Collective::alltoall) {
    spec.splits = alltoall_splits(call, set);
    // Rows beyond the last split are not sent.
    spec.tensors.front().shape[0] = std::accumulate(spec.splits.begin(), spec.splits.end(), std::int64_t{0});
  }
  check_outputs(call, set, rank);
  check_devices(call);
  return spec;
}

}  // namespace hvd

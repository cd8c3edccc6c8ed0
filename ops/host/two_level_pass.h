// One allreduce of the two-level backend on one host's ranks, portion by portion.
//
// The elements are divided into portions twice: for the reduction to the leader in the order in which the algorithm
// between the hosts uses the leader's values, and for the broadcast from the leader in the order in which it has
// results (sliced_reduction.h). All ranks of the host know both orders and the size of a portion, and therefore process
// the same portions in the same order without communication: all of the reduction, then all of the broadcast. The
// leader continues when the network needs values or has results; the others follow.
//
// Both halves take one core's memory bandwidth for a short time, while the network takes long: only the reduction of
// the first portion and the broadcast of the last are not hidden behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/operation/collective_call.h"
#include "ops/algorithms/packing.h"
#include "ops/algorithms/slice_layout.h"
#include "ops/algorithms/slice_sequence.h"
#include "ops/host/host_communicator.h"

namespace hvd {

class TwoLevelPass {
 public:
  // The layout has a slice per host; `host` is the number of this one. The memory is the leader's: accumulators of the
  // host's values, and the results. References outlive the pass.
  TwoLevelPass(HostCommunicator& group, const CollectiveCall& call, const SliceLayout& layout, int host,
               PackedMemory memory, InstructionSet instruction_set);

  // For the leader: values of this part of a slice are needed; results of it are available. As SlicedReduction's hooks.
  void make_ready(std::int64_t begin, std::int64_t end);
  void complete(std::int64_t begin, std::int64_t end);

  // For the other ranks: performs all portions.
  void follow();

 private:
  void reduce_until(std::int64_t element);
  void broadcast_until(std::int64_t element);
  // Portions end at multiples of their size, in both sequences.
  std::int64_t portion_end(std::int64_t from) const;

  HostCommunicator& group_;
  const CollectiveCall& call_;
  const SliceLayout& layout_;
  const PackedMemory memory_;
  const InstructionSet instruction_set_;
  const std::int64_t portion_;
  const SliceSequence reduction_order_, broadcast_order_;
  std::int64_t reduced_ = 0, broadcast_ = 0;  // elements of the sequences
};

}  // namespace hvd

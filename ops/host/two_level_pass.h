// One allreduce of the two-level backend, as far as a host's own ranks do it together: portion by portion.
//
// The elements are cut into portions twice: for the reduction to the leader in the order in which the algorithm between
// the hosts uses the leader's values, and for the broadcast from the leader in the order in which it has results
// (sliced_reduction.h). Both orders and the size of a portion are known to all ranks of the host, so that they take the
// same portions one after the other without a word: all of the reduction, then all of the broadcast. The leader goes on
// when the network needs values or has results; the others follow.
//
// Both halves together are the work of one core's memory for a moment, while the network needs long: what is not hidden
// behind it is the reduction of the first portion and the broadcast of the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/collective/collective_call.h"
#include "ops/algorithms/packing.h"
#include "ops/algorithms/slice_layout.h"
#include "ops/algorithms/slice_sequence.h"
#include "ops/host/host_communicator.h"

namespace hvd {

class TwoLevelPass {
 public:
  // The layout has a slice for each host; `host` is the number of this one. The memory is the leader's: accumulators of
  // the host's values, and the results. References outlive the pass.
  TwoLevelPass(HostCommunicator& group, const CollectiveCall& call, const SliceLayout& layout, int host,
               PackedMemory memory, InstructionSet instruction_set);

  // For the leader: values of this part of a slice are needed; results of it are there. As SlicedReduction's hooks.
  void make_ready(std::int64_t begin, std::int64_t end);
  void complete(std::int64_t begin, std::int64_t end);

  // For the others: all portions.
  void follow();

 private:
  void reduce_until(std::int64_t element);
  void broadcast_until(std::int64_t element);
  // Portions end at its multiples, in both sequences.
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

// What the algorithms of allreduce and reducescatter are called with: N ranks' values, cut into N slices, and who wants
// to hear what about them meanwhile.
//
// The canonical order. A value of slice h is folded at the positions h+1, h+2, ..., h (mod N), in accumulators, and
// then scaled and rounded once. It is the order in which a ring meets them (ring_pass.h), and every algorithm that
// keeps to it has the same bits as the ring: which of them runs may depend on size and fusion without being seen in
// the result.
//
// The order of use. Position p begins to use its own values in the order of slices p-1, p-2, ..., p, and has results in
// the order p, p-1, ..., p+1, ascending within each. An algorithm calls ready() before it reads a range for the first
// time and complete() when the results of a range are there, each element once. Completions keep to the order; a ring,
// which sends slice p-1 while p-2 comes in, makes both ready side by side. So the caller can fill values while earlier
// ones are on the wire, and use results while later ones are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ops/reduction/reduce.h"
#include "ops/transport/transport.h"

namespace hvd {

struct SlicedReduction {
  using Hook = std::function<void(std::int64_t begin, std::int64_t end)>;  // a range of elements, not empty

  Transport& transport;
  std::span<const int> members;  // global ranks, by position
  int position = 0;              // of this rank in members

  // The prescale is for values of the tensors' own type; values of the accumulator type have theirs applied already.
  Reduction reduction;
  DType value_type = DType::float32;  // reduction.dtype or its accumulator type
  // In both, slice h is the elements [slice_bounds[h], slice_bounds[h + 1]). Values are scratch memory of the
  // algorithm once they are ready. Results are of reduction.dtype, and may be the same memory if the types are.
  std::byte* values = nullptr;
  std::byte* results = nullptr;
  std::span<const std::int64_t> slice_bounds;  // members.size() + 1, equal on all members

  Tag tag;  // of the first message; the step is counted up from there
  Deadline deadline;

  Hook ready = {};  // may be empty
  Hook complete = {};

  int ranks() const { return static_cast<int>(members.size()); }
  int member(int at) const { return members[static_cast<std::size_t>(at)]; }
  // Positions, and with them slices, go round.
  int around(int at) const { return (at % ranks() + ranks()) % ranks(); }
  std::int64_t begin_of(int slice) const { return slice_bounds[static_cast<std::size_t>(slice)]; }
  std::int64_t end_of(int slice) const { return slice_bounds[static_cast<std::size_t>(slice) + 1]; }
  std::int64_t elements() const { return slice_bounds.back(); }
  DType accumulator() const { return accumulator_of(reduction.dtype); }

  std::span<std::byte> values_in(std::int64_t begin, std::int64_t end) const;
  std::span<std::byte> results_in(std::int64_t begin, std::int64_t end) const;

  void make_ready(std::int64_t begin, std::int64_t end) const;
  void make_complete(std::int64_t begin, std::int64_t end) const;
  // The slices one after the other, in the order of use.
  void make_all_ready() const;
  void make_all_complete() const;

  // Reduces slice `slice`, of which from[i] is what position i gave, to its results.
  void fold_slice(int slice, std::span<const std::byte* const> from) const;
  // All slices, with from[i] the whole of position i's values.
  void fold_all(std::span<const std::byte* const> from) const;
  // All there is to do with one member: to scale and to round.
  void reduce_alone() const;
};

}  // namespace hvd

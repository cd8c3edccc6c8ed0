// The arguments of the algorithms of allreduce and reducescatter: N ranks' values, cut into N slices, and hooks that
// are called as values are needed and results are available.
//
// The canonical order. The values of slice h are folded at the positions h+1, h+2, ..., h (mod N), in accumulators, and
// then scaled and rounded once. It is the order of a ring (ring.cc), and every algorithm that keeps to it produces
// the same bits as the ring: the choice of algorithm may depend on size and fusion without affecting the result.
//
// The order of use. Position p begins to use its own values in the order of slices p-1, p-2, ..., p, and has results in
// the order p, p-1, ..., p+1, ascending within each. An algorithm calls ready() before it reads a range for the first
// time and complete() when the results of a range are available, each element once. Completions keep to the order; a
// ring, which sends slice p-1 while p-2 arrives, makes both ready alternately. So the caller can fill values while
// earlier ones are being sent, and use results while later ones are.
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

  // The prescale applies to values of the tensors' own type; values of the accumulator type are already prescaled.
  Reduction reduction;
  DType value_type = DType::float32;  // reduction.dtype or its accumulator type
  // In both buffers, slice h is the elements [slice_bounds[h], slice_bounds[h + 1]). Values are scratch memory of the
  // algorithm once they are ready. Results are of reduction.dtype, and may be the same memory if the types are equal.
  std::byte* values = nullptr;
  std::byte* results = nullptr;
  std::span<const std::int64_t> slice_bounds;  // members.size() + 1, equal on all members

  Tag tag;  // of the first message; the step is counted up from there
  Deadline deadline;

  Hook ready = {};  // may be empty
  Hook complete = {};

  int ranks() const { return static_cast<int>(members.size()); }
  int member(int at) const { return members[static_cast<std::size_t>(at)]; }
  // Positions, and therefore slices, are cyclic.
  int around(int at) const { return (at % ranks() + ranks()) % ranks(); }
  std::int64_t begin_of(int slice) const { return slice_bounds[static_cast<std::size_t>(slice)]; }
  std::int64_t end_of(int slice) const { return slice_bounds[static_cast<std::size_t>(slice) + 1]; }
  std::int64_t elements() const { return slice_bounds.back(); }
  DType accumulator() const { return accumulator_of(reduction.dtype); }

  std::span<std::byte> values_in(std::int64_t begin, std::int64_t end) const;
  std::span<std::byte> results_in(std::int64_t begin, std::int64_t end) const;

  void make_ready(std::int64_t begin, std::int64_t end) const;
  void make_complete(std::int64_t begin, std::int64_t end) const;
  // All slices, in the order of use.
  void make_all_ready() const;
  void make_all_complete() const;

  // Reduces slice `slice` to its results; from[i] is the contribution of position i.
  void fold_slice(int slice, std::span<const std::byte* const> from) const;
  // Reduces all slices; from[i] is all values of position i.
  void fold_all(std::span<const std::byte* const> from) const;
  // The whole reduction with one member: scales and rounds.
  void reduce_alone() const;
};

}  // namespace hvd

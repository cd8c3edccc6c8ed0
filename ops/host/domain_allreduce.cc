// Allreduce of ranks in groups (domains.h): what is far is read once a group, not once a rank.
//
// For each chunk, with D groups and m ranks in this one:
//   1. Step: every rank publishes its chunk in its slot.
//   2. Round: each rank reduces one of m slices of its group's chunks into the group's area, as accumulators.
//   3. Round: each rank makes one of m slices of the result from all D groups' areas, in an area of its group.
//   4. Everyone copies the result from its group's area.
// Each group's ranks together read D - 1 chunks from far away, where n ranks without groups would read m (n - m) / n.
// The next chunk is published before the result of this one is awaited.
#include <algorithm>

#include "core/base/error.h"
#include "ops/host/host_group.h"

namespace hvd {

HostGroup::OwnSlice HostGroup::own_slice() const {
  const RankGroups& groups = window_.groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto own = std::find(groups[group].begin(), groups[group].end(), rank());
    if (own == groups[group].end()) continue;
    return {group, static_cast<int>(own - groups[group].begin()), static_cast<int>(groups[group].size())};
  }
  throw Internal("a rank without a group");
}

void HostGroup::domain_allreduce(Publication publication, std::span<const Piece> outputs, const Reduction& reduction,
                                 DType result_type, std::int64_t total) {
  const OwnSlice own = own_slice();
  PieceCursor out(outputs);
  if (publication.left == total) publish_next(publication, reduction);
  for (std::int64_t left = total; left > 0;) {
    const std::int64_t count = std::min(publication.chunk, left);
    window_.await_all();
    reduce_in_group(own, reduction, count);
    window_.await_round();
    reduce_groups(own, reduction, result_type, count);
    const std::byte* result = window_.group_result(own.group);
    publish_next(publication, reduction);
    window_.await_round();
    unpack(out, count, size_of(result_type), result);
    left -= count;
  }
}

void HostGroup::reduce_in_group(const OwnSlice& own, const Reduction& reduction, std::int64_t count) {
  const DType accumulator = accumulator_of(reduction.dtype);
  const std::size_t size = size_of(accumulator);
  const SliceBounds bounds = slice_bounds(count, own.index, own.size, size);
  const std::int64_t block = elements_in(kScratchBytes, size);
  window_.open_round();
  for (int rank = 0; rank < ranks(); ++rank) sources_[static_cast<std::size_t>(rank)] = window_.slot(rank);
  for (std::int64_t first = bounds.begin; first < bounds.end; first += block) {
    const auto elements = static_cast<std::size_t>(std::min(block, bounds.end - first));
    const auto at = static_cast<std::size_t>(first);
    fold_group(own.group, reduction, at, scratch_, elements);
    publishing_results_.copy_chunk(window_.group_partial(own.group) + at * size, scratch_, elements * size);
  }
  window_.finish_slice();
}

void HostGroup::reduce_groups(const OwnSlice& own, const Reduction& reduction, DType result_type, std::int64_t count) {
  const DType accumulator = accumulator_of(reduction.dtype);
  const std::size_t in_size = size_of(accumulator), out_size = size_of(result_type);
  const SliceBounds bounds = slice_bounds(count, own.index, own.size, out_size);
  const std::int64_t block = elements_in(kScratchBytes, out_size);
  Reduction rest = reduction;
  rest.prescale = 1.0;
  std::vector<const void*> partials(window_.groups().size());
  window_.open_round();
  for (std::int64_t first = bounds.begin; first < bounds.end; first += block) {
    const auto elements = static_cast<std::size_t>(std::min(block, bounds.end - first));
    const auto at = static_cast<std::size_t>(first);
    for (std::size_t group = 0; group < partials.size(); ++group) {
      partials[group] = window_.group_partial(group) + at * in_size;
    }
    reduce(rest, accumulator, partials, result_type, scratch_, elements);
    publishing_results_.copy_chunk(window_.group_result(own.group) + at * out_size, scratch_, elements * out_size);
  }
  window_.finish_slice();
}

}  // namespace hvd

// Allreduce of ranks in domains (domains.h): distant memory is read once per domain, not once per rank.
//
// For each chunk, with D domains and m ranks in this one:
//   1. Step: every rank publishes its chunk in its slot.
//   2. Reduction: each rank reduces one of m slices of its domain's chunks into the domain's area, as accumulators.
//   3. Reduction: each rank computes one of m slices of the result from all D domains' areas, in an area of its domain.
//   4. Every rank copies the result from its domain's area.
// The ranks of a domain together read D - 1 chunks from far away, where n ranks without domains would read m (n - m) /
// n. Steps 1 and 4 are those of sliced_allreduce (host_allreduce.cc).
#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "ops/host/host_communicator.h"

namespace hvd {

HostCommunicator::LocalSlice HostCommunicator::find_local_slice() const {
  const Domains& groups = window_.groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto own = std::find(groups[group].begin(), groups[group].end(), rank());
    if (own == groups[group].end()) continue;
    return {group, static_cast<int>(own - groups[group].begin()), static_cast<int>(groups[group].size())};
  }
  throw Internal("a rank without a group");
}

const std::byte* HostCommunicator::reduce_by_domains(const Reduction& reduction, DType result_type,
                                                     std::int64_t count) {
  reduce_in_domain(reduction, count);
  window_.await_reduction();
  reduce_domains(reduction, result_type, count);
  return window_.domain_result(local_slice_.group);
}

void HostCommunicator::reduce_in_domain(const Reduction& reduction, std::int64_t count) {
  const DType accumulator = accumulator_of(reduction.dtype);
  const std::size_t size = size_of(accumulator);
  const SliceBounds bounds = slice_bounds(count, local_slice_.index, local_slice_.size, size);
  window_.open_reduction();
  find_published(0);
  publish_blocks(bounds, size, window_.domain_partial(local_slice_.group),
                 [&](std::size_t first, std::size_t elements) {
                   fold_domain(local_slice_.group, reduction, first, scratch_, elements);
                 });
  window_.finish_slice();
}

void HostCommunicator::reduce_domains(const Reduction& reduction, DType result_type, std::int64_t count) {
  const DType accumulator = accumulator_of(reduction.dtype);
  const std::size_t in_size = size_of(accumulator), out_size = size_of(result_type);
  const SliceBounds bounds = slice_bounds(count, local_slice_.index, local_slice_.size, out_size);
  Reduction rest = reduction;
  rest.prescale = 1.0;
  std::vector<const void*> partials(window_.groups().size());
  window_.open_reduction();
  publish_blocks(bounds, out_size, window_.domain_result(local_slice_.group),
                 [&](std::size_t first, std::size_t elements) {
                   for (std::size_t group = 0; group < partials.size(); ++group) {
                     partials[group] = window_.domain_partial(group) + first * in_size;
                   }
                   reduce(rest, accumulator, partials, result_type, scratch_, elements);
                 });
  window_.finish_slice();
}

}  // namespace hvd

#include "ops/algorithms/slice_sequence.h"

namespace hvd {

SliceSequence::SliceSequence(std::span<const std::int64_t> slice_bounds, int first) : starts_{0} {
  const std::size_t slices = slice_bounds.size() - 1;
  for (std::size_t back = 0; back < slices; ++back) {
    const std::size_t slice = (static_cast<std::size_t>(first) + slices - back) % slices;
    slices_.push_back({slice_bounds[slice], slice_bounds[slice + 1]});
    starts_.push_back(starts_.back() + slice_bounds[slice + 1] - slice_bounds[slice]);
  }
}

std::int64_t SliceSequence::up_to(std::int64_t begin, std::int64_t end) const {
  std::size_t i = 0;
  while (begin < slices_[i].begin || begin >= slices_[i].end) ++i;
  return starts_[i] + end - slices_[i].begin;
}

}  // namespace hvd

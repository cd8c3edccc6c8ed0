#include "ops/algorithms/slice_layout.h"

#include <algorithm>

namespace hvd {

SliceLayout::SliceLayout(std::size_t pieces, int slices)
    : pieces_(pieces), slices_(slices), parts_(pieces * static_cast<std::size_t>(slices)) {}

SliceLayout SliceLayout::balanced(std::span<const std::int64_t> elements, int slices) {
  SliceLayout layout(elements.size(), slices);
  auto part = layout.parts_.begin();
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    for (const std::int64_t count : elements) {
      const std::int64_t share = count / slices;
      const std::int64_t longer = count % slices;
      *part++ = {.offset = slice * share + std::min(slice, longer), .count = share + (slice < longer ? 1 : 0)};
    }
  }
  layout.pack();
  return layout;
}

SliceLayout SliceLayout::with_counts(std::span<const std::vector<std::int64_t>> counts, int slices) {
  SliceLayout layout(counts.size(), slices);
  for (std::size_t piece = 0; piece < counts.size(); ++piece) {
    std::int64_t offset = 0;
    for (std::size_t slice = 0; slice < static_cast<std::size_t>(slices); ++slice) {
      layout.parts_[slice * counts.size() + piece] = {.offset = offset, .count = counts[piece][slice]};
      offset += counts[piece][slice];
    }
  }
  layout.pack();
  return layout;
}

void SliceLayout::pack() {
  std::int64_t packed = 0;
  auto part = parts_.begin();
  for (int slice = 0; slice < slices_; ++slice) {
    bounds_.push_back(packed);
    for (std::size_t piece = 0; piece < pieces_; ++piece, ++part) {
      part->packed_offset = packed;
      packed += part->count;
    }
  }
  bounds_.push_back(packed);
}

std::size_t SliceLayout::part_at(std::int64_t packed_offset) const {
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), packed_offset,
                       [](std::int64_t offset, const Part& part) { return offset < part.packed_offset; });
  return static_cast<std::size_t>(after - parts_.begin()) - 1;
}

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

// The elements of a packed buffer (slice_layout.h) in another order: slice `first`, then first-1, first-2, ...,
// cyclically, each of them forwards. The order in which an algorithm uses values and has results (sliced_reduction.h).
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace hvd {

class SliceSequence {
 public:
  // Bounds as returned by SliceLayout.
  SliceSequence(std::span<const std::int64_t> slice_bounds, int first);

  std::int64_t elements() const { return starts_.back(); }

  // The number of elements of the sequence up to the end of [begin, end), which is a part of one slice.
  std::int64_t up_to(std::int64_t begin, std::int64_t end) const;

  // Calls body(begin, end) with the parts of the packed buffer that are elements [from, to) of the sequence.
  template <typename Body>
  void for_each_part(std::int64_t from, std::int64_t to, const Body& body) const {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::int64_t first = std::max(from, starts_[i]), last = std::min(to, starts_[i + 1]);
      if (first < last) body(slices_[i].begin + first - starts_[i], slices_[i].begin + last - starts_[i]);
    }
  }

 private:
  struct Slice {
    std::int64_t begin, end;  // in the packed buffer
  };

  std::vector<Slice> slices_;         // in the order of the sequence
  std::vector<std::int64_t> starts_;  // in the sequence; one more than slices
};

}  // namespace hvd

// What the user wants: HVD_ALGORITHM, as data. Pure.
//
//   HVD_ALGORITHM="allreduce:0-64k=direct;1m-=ring"
//
// Messages of the first size and more, but below the second, take the algorithm. Sizes are of all tensors of the
// message together, in bytes or with k, m or g (1024 bytes, and so on); a size left out is no limit. What no range
// covers is chosen as always.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "ops/algorithms/allreduce_algorithm.h"

namespace hvd {

struct AlgorithmOverride {
  struct Range {
    std::size_t from, to;
    AllreduceAlgorithm algorithm;
  };
  std::vector<Range> allreduce;  // ascending; none overlaps another

  // The range that has so many bytes, or null.
  const Range* find(std::size_t bytes) const;
};

// Throws InvalidArgument that quotes the text and says what is allowed: for what cannot be read, an unknown name, an
// empty range, ranges that overlap, or, where determinism is asked for, an algorithm that cannot keep it.
AlgorithmOverride parse_algorithm_override(std::string_view text, bool deterministic);

}  // namespace hvd

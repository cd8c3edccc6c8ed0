// The user's choice of algorithms: HVD_ALGORITHM, parsed. Pure.
//
//   HVD_ALGORITHM="allreduce:0-64k=direct;1m-=ring"
//
// Messages from the first size up to, but not including, the second use the algorithm. Sizes are the sum over the
// tensors of a message, in bytes or with k, m or g (1024 bytes, and so on); a missing size is no limit. The default
// choice applies outside the ranges.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "ops/algorithms/allreduce.h"

namespace hvd {

struct AlgorithmOverride {
  struct Range {
    std::size_t from, to;
    AllreduceAlgorithm algorithm;
  };
  std::vector<Range> allreduce;  // ascending, without overlap

  // Returns the range that contains `bytes`, or null.
  const Range* find(std::size_t bytes) const;
};

// Throws InvalidArgument that quotes the text and lists what is allowed: for a syntax error, an unknown name, an empty
// range, overlapping ranges, or an algorithm that is not deterministic where determinism is required.
AlgorithmOverride parse_algorithm_override(std::string_view text, bool deterministic);

}  // namespace hvd

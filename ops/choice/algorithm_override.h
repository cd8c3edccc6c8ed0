// The user's choice of algorithms: HVD_ALGORITHM, parsed. Pure.
//
//   HVD_ALGORITHM="allreduce:0-64k=direct;1m-=ring;0-=sliced"
//
// Messages from the first size up to, but not including, the second use the algorithm. Sizes are the sum over the
// tensors of a message, in bytes or with k, m or g (1024 bytes, and so on); a missing size is no limit. The name of an
// algorithm tells whether the range is about messages between hosts or about shared memory, in a job on one host
// (host_choice.h). The default choice applies outside the ranges.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "ops/algorithms/allreduce.h"
#include "ops/choice/host_choice.h"
#include "ops/choice/table_text.h"

namespace hvd {

struct AlgorithmOverride {
  // Ascending, without overlap.
  std::vector<SizeRange<AllreduceAlgorithm>> allreduce;
  std::vector<SizeRange<HostForm>> inside_host;

  // Returns the range between hosts that contains `bytes`, or null.
  const SizeRange<AllreduceAlgorithm>* find(std::size_t bytes) const {
    return find_range<AllreduceAlgorithm>(allreduce, bytes);
  }
};

// Throws InvalidArgument that quotes the text and lists what is allowed: for a syntax error, an unknown name, an empty
// range, overlapping ranges, or an algorithm that is not deterministic where determinism is required.
AlgorithmOverride parse_algorithm_override(std::string_view text, bool deterministic);

}  // namespace hvd

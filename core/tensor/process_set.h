// An ordered subset of the ranks that performs collectives together (MPI: communicator).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

inline constexpr std::int32_t kGlobalProcessSet = 0;

struct ProcessSet {
  std::int32_t id = kGlobalProcessSet;
  std::vector<int> ranks;  // global ranks, ascending

  int size() const { return static_cast<int>(ranks.size()); }

  // Position of a global rank within the set; empty if it is not a member.
  std::optional<int> rank_of(int global_rank) const {
    auto it = std::lower_bound(ranks.begin(), ranks.end(), global_rank);
    if (it == ranks.end() || *it != global_rank) return std::nullopt;
    return static_cast<int>(it - ranks.begin());
  }
};

}  // namespace hvd

// Performs one vote exchange, for tests of its implementations.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "core/execution/backend.h"
#include "core/tensor/collective.h"
#include "ops/algorithms/vote_exchange.h"

namespace hvd::testing {

inline ProcessSet everyone(int ranks) {
  ProcessSet set{.id = 5, .ranks = std::vector<int>(static_cast<std::size_t>(ranks))};
  std::iota(set.ranks.begin(), set.ranks.end(), 0);
  return set;
}

// Whether somebody has declined.
inline bool cast_vote(VoteExchange& votes, const ProcessSet& set, std::uint32_t call_id, bool declines) {
  try {
    declines ? votes.decline(set, call_id) : votes.ask(set, call_id);
    return declines;
  } catch (const Declined&) {
    return true;
  }
}

}  // namespace hvd::testing

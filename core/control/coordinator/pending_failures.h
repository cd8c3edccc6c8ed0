// The negotiations of a name that failed before every rank had asked, and the ranks that have not asked yet: each still
// owes a submission, which gets the same error. So a rank's n-th submission belongs to the name's n-th negotiation.
//
// Pure; owned by the Coordinator. Once there are many, those that the same ranks owe are counted in one entry, so that
// a rank that never comes back costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/status.h"
#include "core/control/protocol/rank_set.h"

namespace hvd {

class PendingFailures {
 public:
  struct Claim {
    Status status;
    RankSet ranks;
    std::uint64_t order = 0;
  };

  // `order`: higher than that of any earlier failure, of any name.
  void add(const Status& status, const RankSet& owing, std::uint64_t order);

  bool empty() const { return rounds_.empty(); }
  // The order of the last failure added; requires !empty().
  std::uint64_t newest() const { return rounds_.back().order; }
  std::size_t size() const { return rounds_.size(); }

  // Removes the oldest failure of each of the ranks. Ranks that owe nothing are in no claim.
  std::vector<Claim> pay(const RankSet& ranks);
  // What pay() would return, without removing it.
  std::vector<Claim> claims(const RankSet& ranks) const { return PendingFailures(*this).pay(ranks); }

  // These ranks no longer owe what failed before `order`.
  void forgive(const RankSet& ranks, std::uint64_t order);
  void clear() { rounds_.clear(); }

 private:
  static constexpr std::size_t kApart = 64;

  struct Round {
    Status status;
    RankSet owing;
    std::uint64_t order = 0;  // of the last
    std::uint64_t times = 1;
  };

  std::deque<Round> rounds_;  // oldest first, in the order in which each rank owes them
};

}  // namespace hvd

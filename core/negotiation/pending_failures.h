// Rounds that ended with an error before every rank had asked, and the ranks that have not asked for them yet: each
// still owes a submission, which gets the same error. So a rank's n-th submission of a name belongs to the n-th round.
//
// Pure; owned by the Coordinator. Rounds that the same ranks owe are counted together once there are many, so that a
// rank that never comes back costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/status.h"
#include "core/negotiation/rank_set.h"

namespace hvd {

class PendingFailures {
 public:
  struct Claim {
    Status status;
    RankSet ranks;
    std::uint64_t order = 0;
  };

  // `order`: higher than that of any round that failed before, under whatever name.
  void add(const Status& status, const RankSet& owing, std::uint64_t order);

  bool empty() const { return rounds_.empty(); }
  // Of the last round that was added; there is one.
  std::uint64_t newest() const { return rounds_.back().order; }
  std::size_t size() const { return rounds_.size(); }

  // Each of the ranks pays its oldest debt. Ranks that owe nothing are in no claim.
  std::vector<Claim> pay(const RankSet& ranks);
  // What each of them would pay.
  std::vector<Claim> claims(const RankSet& ranks) const { return PendingFailures(*this).pay(ranks); }

  // These ranks do not owe any more what failed before `order`.
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

  std::deque<Round> rounds_;  // oldest first, as each rank owes them
};

}  // namespace hvd

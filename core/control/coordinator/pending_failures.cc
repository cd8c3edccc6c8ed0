#include "core/control/coordinator/pending_failures.h"

#include <utility>

namespace hvd {

void PendingFailures::add(const Status& status, const RankSet& owing, std::uint64_t order) {
  if (owing.empty()) return;
  if (rounds_.size() >= kApart && rounds_.back().owing == owing) {
    ++rounds_.back().times;
    rounds_.back().order = order;
  } else {
    rounds_.push_back({.status = status, .owing = owing, .order = order});
  }
}

std::vector<PendingFailures::Claim> PendingFailures::pay(const RankSet& ranks) {
  RankSet free = ranks;
  std::vector<Claim> paid;
  std::deque<Round> left;
  for (Round& round : rounds_) {
    const RankSet paying = intersection(free, round.owing);
    if (!paying.empty()) {
      free.remove(paying);
      round.owing.remove(paying);
      paid.push_back({round.status, paying, round.order});
      if (round.times > 1) left.push_back({round.status, paying, round.order, round.times - 1});
    }
    if (!round.owing.empty()) left.push_back(std::move(round));
  }
  rounds_ = std::move(left);
  return paid;
}

void PendingFailures::forgive(const RankSet& ranks, std::uint64_t order) {
  for (Round& round : rounds_) {
    if (round.order < order) round.owing.remove(ranks);
  }
  std::erase_if(rounds_, [](const Round& round) { return round.owing.empty(); });
}

}  // namespace hvd

// The senders of a node's messages: the ranks for which each speaks, and how many answers all of these have applied.
//
// Pure value, owned by whatever reads the messages: the Coordinator or a RequestAggregator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/control/protocol/rank_set.h"

namespace hvd {

class Sources {
 public:
  struct Source {
    RankSet ranks;
    std::uint64_t applied = 0;  // the number of messages that all of them have applied
  };

  explicit Sources(const std::map<int, RankSet>& ranks_of) {
    for (const auto& [source, ranks] : ranks_of) sources_[source].ranks = ranks;
  }

  // Null if this rank is to send nothing.
  Source* find(int source) {
    const auto found = sources_.find(source);
    return found == sources_.end() ? nullptr : &found->second;
  }

  // All sources have applied at least so many messages.
  void have_applied(std::uint64_t number) {
    for (auto& [rank, source] : sources_) source.applied = std::max(source.applied, number);
  }

  // The join of `ranks`, among `joined`, ends with this message: they apply it before they send anything.
  void end_join(const RankSet& joined, const RankSet& ranks, std::uint64_t number) {
    for (auto& [rank, source] : sources_) {
      if (joined.contains(source.ranks) && ranks.intersects(source.ranks)) source.applied = number;
    }
  }

  // How many of the `sent` messages every rank has applied that may still refer to one. A rank that has joined has no
  // hit in flight, and sends none before it has applied everything up to the join's end.
  std::uint64_t applied_by_all(std::uint64_t sent, const RankSet& joined) const {
    for (const auto& [rank, source] : sources_) {
      if (!joined.contains(source.ranks)) sent = std::min(sent, source.applied);
    }
    return sent;
  }

 private:
  std::map<int, Source> sources_;
};

}  // namespace hvd

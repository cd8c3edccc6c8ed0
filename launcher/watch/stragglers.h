// From what all ranks are doing to one sentence: who keeps the others waiting, in which operation, and where in its
// script it is. And the long form, for `hvd stacks`. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

struct StatusOfRank {
  int rank = 0;
  std::string host;
  std::optional<RankStatus> status;  // nothing: there was no answer
};

// "rank 3 (host h2) has not submitted allreduce 'layer3.weight' (operation 118 of set 0), for which ranks 0-2 have
// waited 12.4 s; it is at train.py:48 in load_batch". Empty if nobody waits for as long as `stall_time`, or all do the
// same.
std::string find_stragglers(const std::vector<StatusOfRank>& ranks, Duration stall_time);

// What stays the same of that sentence as long as the stall does: without how long they have waited, and where the
// script is.
std::string stable_part_of(const std::string& sentence);

// How long somebody must wait if the ranks are stalled: a moment where the stall inspector has warned, else as long as
// they have said.
Duration time_to_count_as_stalled(const std::vector<StatusOfRank>& ranks);

// Lines, of each rank: what it is doing, its operations under way, and its Python stacks.
std::string stacks_text(const std::vector<StatusOfRank>& ranks);

}  // namespace hvd::launcher

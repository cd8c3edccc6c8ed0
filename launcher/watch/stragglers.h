// Finds the stragglers of a job from the status of all ranks, and reports them in one sentence: which ranks the others
// wait for, in which operation, and where they are in the script. Also formats the long form for `hvd stacks`. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

// "rank 3 (host h2) has not submitted allreduce 'layer3.weight' (operation 118 of set 0), for which ranks 0-2 have
// waited 12.4 s; it is at train.py:48 in load_batch". Empty if no rank has waited for `stall_time` (in init: for
// 0.5 s), or all ranks do the same.
std::string find_stragglers(const std::vector<StatusOfRank>& ranks, Duration stall_time);

// The stable part of that sentence, the same for as long as the stall lasts: without the time waited and the place in
// the script.
std::string stable_part_of(const std::string& sentence);

// The shortest wait that counts as a stall: a moment if the stall inspector has warned, else the ranks' stall time.
Duration time_to_count_as_stalled(const std::vector<StatusOfRank>& ranks);

// Lines for each rank: what it is doing, its open operations, and its Python stacks.
std::string stacks_text(const std::vector<StatusOfRank>& ranks);

}  // namespace hvd::launcher

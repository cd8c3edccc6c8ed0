// All ranks' numbers for programs, `hvd top` for one: a line of names, then a line for each rank, fields parted by
// tabs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/who_is_behind.h"

namespace hvd::launcher {

// Of a rank that has not answered only the first two fields, and "-" for the others.
std::string standings_table(const std::vector<RankStanding>& ranks);

}  // namespace hvd::launcher

// All ranks' numbers for programs, `hvd top` for one: a line of names, then a line for each rank, fields parted by
// tabs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/watch/stragglers.h"

namespace hvd::launcher {

// Of a rank that has not answered only the first two fields, and "-" for the others.
std::string status_table(const std::vector<StatusOfRank>& ranks);

}  // namespace hvd::launcher

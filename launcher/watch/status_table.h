// Formats the status of all ranks for programs such as `hvd top`: a line of names, then a line per rank, with fields
// separated by tabs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/watch/stragglers.h"

namespace hvd::launcher {

// A rank that has not answered has only the first two fields, and "-" for the others.
std::string status_table(const std::vector<StatusOfRank>& ranks);

}  // namespace hvd::launcher

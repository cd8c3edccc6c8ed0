// Whether this process is a rank of a job, and how it becomes several.
#pragma once

#include <string>
#include <vector>

namespace hvd::bench {

// Something has started this process as one rank of a job.
bool is_rank_of_job();

// Of several ranks rank 0 alone speaks of what concerns all.
bool is_first_rank();

// Becomes `hvdrun -np ranks <this program> <arguments>`: the hvdrun beside this program, or else the one on the PATH.
// Returns only by throwing std::runtime_error.
[[noreturn]] void become_job(int ranks, const std::vector<std::string>& arguments);

}  // namespace hvd::bench

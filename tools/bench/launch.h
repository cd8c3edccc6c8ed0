// Detects whether this process is a rank of a job, and starts a job of several ranks otherwise.
#pragma once

#include <string>
#include <vector>

namespace hvd::bench {

// Whether a launcher started this process as one rank of a job.
bool is_rank_of_job();

// Whether this is rank 0, which alone prints messages that concern all ranks.
bool is_first_rank();

// Replaces this process by `hvdrun -np ranks <this program> <arguments>`: the hvdrun beside this program, or else the
// one on the PATH. Throws std::runtime_error on failure.
[[noreturn]] void become_job(int ranks, const std::vector<std::string>& arguments);

}  // namespace hvd::bench

// The descriptors of hvdrun, or of an agent: how many it may have, and how many the ranks of its host take.
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace hvd::launcher {

// As many as are allowed. Returns the limit as it was, for the ranks: some programs misbehave with a high one.
rlimit raise_open_files();

// The ranks of a host, as far as it matters for descriptors.
struct RankFiles {
  std::size_t ranks = 0;
  std::size_t readers = 0;    // of them, those that read hvdrun's standard input
  bool merge_errors = false;  // standard error goes the way of standard output
};

// Descriptors that they take of hvdrun while they run.
std::size_t open_files_of(const RankFiles& files);

// Throws Internal that says how many are missing: better than ranks that are refused in the middle of their init.
void check_open_files(const RankFiles& files);

}  // namespace hvd::launcher

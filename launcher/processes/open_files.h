// The open-file limit of hvdrun or an agent, and the number of descriptors that the ranks of its host need.
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace hvd::launcher {

// Raises the soft limit to the hard limit. Returns the previous limit, which the ranks get: some programs misbehave
// with a high one.
rlimit raise_open_files();

// What the number of descriptors depends on.
struct RankFiles {
  std::size_t ranks = 0;
  std::size_t readers = 0;    // ranks that read hvdrun's standard input
  bool merge_errors = false;  // standard error shares the pipe of standard output
};

// The number of descriptors that hvdrun needs for these ranks while they run.
std::size_t open_files_of(const RankFiles& files);

// Throws Internal, with the number needed and the limit, if the limit is too low: ranks would else fail during init.
void check_open_files(const RankFiles& files);

}  // namespace hvd::launcher

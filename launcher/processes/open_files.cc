#include "launcher/processes/open_files.h"

#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

// Two shared memory files, the pipe of standard output, and the connection to the store.
constexpr std::size_t kPerRank = 4;
// Temporary descriptors: the write ends of pipes, status connections.
constexpr std::size_t kSpare = 8;

std::size_t count_open() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  return error ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

rlimit raise_open_files() {
  rlimit original{};
  getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

std::size_t open_files_of(const RankFiles& files) {
  return files.ranks * (files.merge_errors ? kPerRank : kPerRank + 1) + files.readers + kSpare;
}

void check_open_files(const RankFiles& files) {
  rlimit limit{};
  const std::size_t needed = count_open() + open_files_of(files);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || needed <= limit.rlim_cur) return;
  throw Internal(std::to_string(files.ranks) + " ranks on this host take " + std::to_string(needed) +
                 " open files of hvdrun, which may have " + std::to_string(limit.rlim_cur) +
                 ": raise the limit (ulimit -n), or start fewer ranks here");
}

}  // namespace hvd::launcher

#include "launcher/open_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

// Two pieces of memory, the pipe of standard output, and the connection to the store.
constexpr std::size_t kPerRank = 4;
// What comes and goes: the writers' ends of pipes, those who ask about the job.
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

std::size_t open_files_of(const HostPlan& plan) {
  const std::size_t ranks = plan.ranks.size();
  const auto readers = static_cast<std::size_t>(
      std::count_if(plan.ranks.begin(), plan.ranks.end(), [](const RankPlan& rank) { return rank.reads_input; }));
  return ranks * (plan.merge_errors ? kPerRank : kPerRank + 1) + readers + kSpare;
}

void check_open_files(const HostPlan& plan) {
  rlimit limit{};
  const std::size_t needed = count_open() + open_files_of(plan);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || needed <= limit.rlim_cur) return;
  throw Internal(std::to_string(plan.ranks.size()) + " ranks on this host take " + std::to_string(needed) +
                 " open files of hvdrun, which may have " + std::to_string(limit.rlim_cur) +
                 ": raise the limit (ulimit -n), or start fewer ranks here");
}

}  // namespace hvd::launcher

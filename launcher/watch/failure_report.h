// Formats the report that hvdrun prints last when a job has failed. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/watch/job_end.h"

namespace hvd::launcher {

inline constexpr std::size_t kReportedLines = 20;

struct Failure {
  int rank = 0;
  std::string host{};  // its name; empty: the job has only one host
  int pid = 0;
  Duration age{};                         // of the job when the rank ended
  std::string stream = "standard error";  // the stream that last_lines are from
  std::vector<std::string> last_lines{};
};

// The cause of the failure as sent to the other ranks: "rank 2 on h2 has failed: killed by SIGKILL ...",
// "rank 2 on h2 raised ...", "host h2 (ranks 4-7) is lost: ...".
std::string rank_failure(int rank, const std::string& host, const RankEnd& end);
std::string host_loss(const LostHost& host);

// `ends` is indexed by rank; empty means a process that even SIGKILL did not end.
std::string failure_report(const Failure& failure, const std::vector<std::optional<RankEnd>>& ends);

// "hvdrun: host h2 (ranks 4-7) is lost: ..."
std::string lost_host_report(const std::vector<LostHost>& lost, const std::vector<std::optional<RankEnd>>& ends);

// "hvdrun: ended by SIGINT; ranks 0-3 exited with code 1"
std::string interruption_report(int signal, const std::vector<std::optional<RankEnd>>& ends);

// "hvdrun: the job has reached its --timeout; ranks 0-3 killed by SIGTERM"
std::string timeout_report(const std::vector<std::optional<RankEnd>>& ends);

// Formats ascending numbers: "rank 4", "ranks 0-2, 5".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace hvd::launcher

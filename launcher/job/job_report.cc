#include "launcher/job/job_report.h"

#include <utility>

#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

JobReport::JobReport(const JobParts& job, StatusQueries& queries,
                     std::function<void(const std::string& cause)> set_failure, bool merges_errors)
    : job_(job), queries_(queries), set_failure_(std::move(set_failure)), merges_errors_(merges_errors) {}

void JobReport::tell_ranks(const std::string& cause) {
  if (!std::exchange(has_told_ranks_, true)) set_failure_(cause);
}

void JobReport::failed(const std::string& cause) {
  if (stragglers_) return;
  stragglers_ = "";
  tell_ranks(cause);
  queries_.ask(false, [this](const std::vector<StatusOfRank>& ranks) {
    stragglers_ = find_stragglers(ranks, Duration::zero());
  });
}

void JobReport::timed_out() {
  queries_.ask(true, [this, is_first = !stragglers_](const std::vector<StatusOfRank>& ranks) {
    // It has ended: its epochs were stopped. One that still waits for its hosts has no processes either, but runs.
    if (!job_.end.is_running() && !job_.processes.any_left() && job_.output.all_closed()) return;
    if (is_first) stragglers_ = find_stragglers(ranks, Duration::zero());
    job_.end.timed_out(Clock::now());
  });
}

Failure JobReport::failure_of(int number) const {
  const JobProcess& process = job_.processes.at(number);
  return {.rank = number,
          .host = process.host_name,
          .is_process = job_.processes.is_elastic(),
          .pid = process.pid,
          .age = process.age,
          .stream = merges_errors_ ? "output" : "standard error",
          .last_lines = job_.output.last_lines(number, kReportedLines)};
}

void JobReport::write() const {
  const JobEnd& end = job_.end;
  const JobEnd::Reason reason = end.reason();
  const bool are_processes = job_.processes.is_elastic();
  if (const auto& lost = end.lost_hosts(); !lost.empty() && !end.first_failed()) {
    job_.output.append(lost_host_report(lost, end.ends()));
  } else if (const std::optional<int> rank = end.first_failed()) {
    job_.output.append(failure_report(failure_of(*rank), end.ends()));
  } else if (job_.servers.failed() && reason == JobEnd::Reason::server_failed) {
    const auto& [number, status] = *job_.servers.failed();
    Failure failure = failure_of(number);
    failure.rank = job_.processes.at(number).plan.server;
    failure.server_end = RankEnd{.status = status};
    job_.output.append(failure_report(failure, end.ends()));
  } else if (reason == JobEnd::Reason::timed_out) {
    job_.output.append(timeout_report(end.ends(), are_processes));
  } else if (reason == JobEnd::Reason::ended_early) {
    job_.output.say("the job has ended early, as requested; exit code " + std::to_string(kEndedEarlyCode) +
                    ": start it again to continue");
  } else if (reason == JobEnd::Reason::interrupted) {
    job_.output.append(interruption_report(end.interrupting_signal(), end.ends(), are_processes));
  }
  const bool blames_the_job = end.first_failed() || !end.lost_hosts().empty() ||
                              reason == JobEnd::Reason::server_failed || reason == JobEnd::Reason::timed_out;
  if (blames_the_job && stragglers_ && !stragglers_->empty()) job_.output.say("when it failed: " + *stragglers_);
  for (const auto& host : job_.processes.hosts()) {
    for (pid_t pid : host->list_left()) job_.output.say("process " + std::to_string(pid) + " could not be killed");
  }
}

}  // namespace hvd::launcher

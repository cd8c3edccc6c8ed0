// Collects the cause of a job's failure while its ranks still run, and writes hvdrun's last report. Main thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/job/job_processes.h"
#include "launcher/job/job_status.h"
#include "launcher/watch/job_end.h"

namespace hvd::launcher {

class JobReport {
 public:
  // `set_failure` reports the failure to ranks that are in rendezvous. `queries` and what `job` refers to outlive this.
  JobReport(const JobParts& job, StatusQueries& queries, std::function<void(const std::string& cause)> set_failure,
            bool merges_errors);

  // Only the first failure counts, for the ranks and here.
  void tell_ranks(const std::string& cause);
  // Tells the ranks, and queries the status of all of them at that moment.
  void failed(const std::string& cause);
  // Queries the status before ending the job: only a running process can report where its script is.
  void timed_out();

  // Writes why the job has failed or ended early, and which processes could not be killed.
  void write() const;

 private:
  Failure failure_of(int number) const;  // of a process that has ended

  const JobParts job_;
  StatusQueries& queries_;
  const std::function<void(const std::string& cause)> set_failure_;
  const bool merges_errors_;
  bool has_told_ranks_ = false;
  std::optional<std::string> stragglers_;  // at the failure; "" until the hosts have answered
};

}  // namespace hvd::launcher

// The processes of a job, and the hosts that they run on. Main thread only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/host.h"
#include "launcher/plan/host_plan.h"

namespace hvd::launcher {

// A rank, a server, or a process of an elastic job.
struct JobProcess {
  int host = 0;
  std::string host_name{};  // empty: the job has only one host
  std::string name{};       // "rank 3 on h2"
  pid_t pid = -1;
  Duration age{};  // of the job when the process ended
  RankPlan plan{};

  bool is_server() const { return plan.server >= 0; }
};

class JobProcesses {
 public:
  struct Elastic {
    Duration stopped_limit{};         // see HostPlan
    std::string preemption_script{};  // likewise
  };
  // `elastic`: null if the job's ranks stay the same; outlives this.
  explicit JobProcesses(const Elastic* elastic) : elastic_(elastic) {}

  // A host that gets the next number. In an elastic job its plan's ranks are its slots, and it begins without
  // processes.
  void add_host(HostPlan plan, std::unique_ptr<Host> host);
  const std::vector<HostPlan>& plans() const { return plans_; }
  const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  const HostPlan& plan_of(int host) const { return plans_[static_cast<std::size_t>(host)]; }
  // By host, of an elastic job.
  const std::vector<RankPlan>& slots_of(int host) const { return slots_[static_cast<std::size_t>(host)]; }
  // The number of the host of this name; of one that was lost and has come back, which is there twice, the last.
  int host_named(const std::string& name) const;

  // A process is about to start there, with the number in its plan's place.
  void open(int host, const RankPlan& plan);
  JobProcess& at(int number) { return processes_.at(number); }
  const JobProcess& at(int number) const { return processes_.at(number); }
  // By number; those that have ended, too.
  const std::map<int, JobProcess>& all() const { return processes_; }

  // Starts what the hosts' plans have; or one further process that is open.
  void start_all();
  void start(int number);
  // The process is not in its host's plan any longer; of a host that is lost, none is.
  void remove(int number);
  void remove_all(int host);

  // No process is left on the host, until others are started there.
  void nothing_left(int host) { in_use_.erase(host); }
  bool any_left() const { return !in_use_.empty(); }

  // See Host. To all hosts.
  void signal_ranks(int signal) const;
  void signal_all(int signal) const;

 private:
  const Elastic* const elastic_;
  std::vector<HostPlan> plans_;
  std::vector<std::unique_ptr<Host>> hosts_;  // one per plan
  std::vector<std::vector<RankPlan>> slots_;
  std::map<int, JobProcess> processes_;
  std::set<int> in_use_;  // hosts with processes of the job
};

}  // namespace hvd::launcher

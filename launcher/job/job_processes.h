// The processes of a job, the hosts that they run on, and its parameter servers. Main thread only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/host.h"
#include "launcher/job/job_output.h"
#include "launcher/membership/server_placement.h"
#include "launcher/plan/host_plan.h"
#include "launcher/watch/job_end.h"

namespace hvd::launcher {

// A rank, a server, or a process of an elastic job.
struct JobProcess {
  int host = 0;
  std::string host_name{};  // empty: the job has only one host
  std::string name{};       // "rank 3 on h2"
  pid_t pid = -1;
  Duration age{};  // of the job when the process ended
  RankPlan plan{};

  bool is_server() const;
};

class JobProcesses {
 public:
  struct Elastic {
    Duration stopped_limit{};         // see HostPlan
    std::string preemption_script{};  // likewise
  };
  // `elastic`: empty if the job's ranks stay the same. `opened` is called before a process starts.
  JobProcesses(std::optional<Elastic> elastic, std::function<void(const RankPlan& process)> opened);

  bool is_elastic() const;

  // A host that gets the next number. In an elastic job its plan's ranks are its slots, and it begins without
  // processes.
  void add_host(HostPlan plan, std::unique_ptr<Host> host);
  const std::vector<HostPlan>& plans() const;
  const std::vector<std::unique_ptr<Host>>& hosts() const;
  const HostPlan& plan_of(int host) const;
  // By host, of an elastic job.
  const std::vector<RankPlan>& slots_of(int host) const;
  // Likewise; for the processes that are started from now on.
  void set_slots(int host, std::vector<RankPlan> slots);
  // The host's number. A host that was lost and has come back has several: returns the newest.
  int host_named(const std::string& name) const;

  JobProcess& at(int number);
  const JobProcess& at(int number) const;
  // By number; those that have ended, too.
  const std::map<int, JobProcess>& all() const;

  // Starts what the hosts' plans have, each process with the number in its plan.
  void start_all();
  // Starts a further process.
  void start(int host, const RankPlan& plan);
  // The process is not in its host's plan any longer; of a host that is lost, none is.
  void remove(int number);
  void remove_all(int host);

  // No process is left on the host, until others are started there.
  void nothing_left(int host);
  bool any_left() const;

  // See Host. To all hosts.
  void signal_ranks(int signal) const;
  void signal_all(int signal) const;

 private:
  void open(int host, const RankPlan& plan);

  const std::optional<Elastic> elastic_;
  const std::function<void(const RankPlan& process)> opened_;
  std::vector<HostPlan> plans_;
  std::vector<std::unique_ptr<Host>> hosts_;  // one per plan
  std::vector<std::vector<RankPlan>> slots_;
  std::map<int, JobProcess> processes_;
  std::set<int> in_use_;  // hosts with processes of the job
};

// The parameter servers of a job: tracks which of them run, and restarts those that end.
class JobServers {
 public:
  struct Callbacks {
    std::function<bool()> wanted;  // whether the job goes on, and with it the servers
    std::function<void(const std::string& line)> say;
    // A server has ended too often, and so the job has failed.
    std::function<void(ExitStatus status, const std::string& cause)> failed;
  };

  // `processes` outlives it. The next server that is started gets the number `next_number` in it, and so on.
  JobServers(ServerPlacement placement, int next_number, JobProcesses& processes, Callbacks callbacks, bool verbose);

  // The servers that the next host has, or might have.
  void add_host(std::vector<RankPlan> servers);
  // The hosts stay the same, and the servers that they have start with them, at this time.
  void start_with_hosts(TimePoint now);
  // Which hosts may be used now, with their slots.
  void hosts_changed(const std::vector<HostCount>& hosts);

  bool any_runs() const;
  bool any_runs_on(int host) const;
  // The process does not run any longer. Returns whether it did.
  bool stopped(int number);
  // The process, a server, has ended, or could not be started. It is started again if it is wanted.
  void ended(int number, ExitStatus status);
  // The process that has ended too often, and its end.
  const std::optional<std::pair<int, ExitStatus>>& failed() const;

  // See ServerPlacement.
  void process_failed();
  void host_lost(const std::string& host, TimePoint now);
  void host_preempted(const std::string& host);
  std::optional<Deadline> next_deadline() const;
  // Starts the servers that are wanted and due now.
  void start_due();

  // Ends the servers of a preempted host, so that they are started elsewhere, once its ranks have left: until then
  // these may need them.
  void evacuate(int host) const;

 private:
  ServerPlacement placement_;
  int next_number_;
  JobProcesses& processes_;
  const Callbacks callbacks_;
  const bool verbose_;
  std::vector<std::vector<RankPlan>> plans_;  // by host
  std::set<int> running_;                     // numbers of processes
  std::optional<std::pair<int, ExitStatus>> failed_{};
};

// The parts of a running job on which its events act.
struct JobParts {
  JobProcesses& processes;
  JobServers& servers;
  JobEnd& end;
  JobOutput& output;
};

}  // namespace hvd::launcher

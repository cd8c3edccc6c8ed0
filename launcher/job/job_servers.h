// The parameter servers of a job: which of them run, and that one which has ended is started again. Main thread only.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/job_processes.h"
#include "launcher/membership/server_places.h"

namespace hvd::launcher {

class JobServers {
 public:
  // Opens a process on a host, and starts it.
  using Start = std::function<void(int host, const RankPlan& plan)>;

  // `processes` outlives it. The next server that is started gets the number `next_number` in it, and so on.
  JobServers(ServerPlaces places, int next_number, JobProcesses& processes, Start start)
      : places_(std::move(places)), next_number_(next_number), processes_(processes), start_(std::move(start)) {}

  // The servers that the next host has, or might have.
  void add_host(std::vector<RankPlan> servers) { plans_.push_back(std::move(servers)); }
  // One of them starts with its host, at this time.
  void opened(int number, TimePoint now);
  // Which hosts may be used now, with their slots.
  void hosts_changed(const std::vector<HostCount>& hosts) { places_.hosts_changed(hosts); }

  bool any_runs() const { return !running_.empty(); }
  bool any_runs_on(int host) const;
  // The process does not run any longer. Returns whether it did.
  bool stopped(int number) { return running_.erase(number) > 0; }
  // A server that is wanted has ended. Returns when it is started again; empty: it has failed too often.
  std::optional<TimePoint> ended(int number, ExitStatus status, TimePoint now);
  // The process that has failed too often, and its end.
  const std::optional<std::pair<int, ExitStatus>>& failed() const { return failed_; }

  // See ServerPlaces.
  void process_failed() { places_.process_failed(); }
  void host_lost(const std::string& host, TimePoint now) { places_.host_lost(host, now); }
  void host_preempted(const std::string& host) { places_.host_preempted(host); }
  std::optional<Deadline> next_deadline() const { return places_.next_deadline(); }
  void start_due(TimePoint now);

  // Ends the servers of a preempted host, so that they are started elsewhere, once its ranks have left: until then
  // these may need them.
  void leave(int host) const;

 private:
  ServerPlaces places_;
  int next_number_;
  JobProcesses& processes_;
  const Start start_;
  std::vector<std::vector<RankPlan>> plans_;  // by host
  std::set<int> running_;                     // numbers of processes
  std::optional<std::pair<int, ExitStatus>> failed_{};
};

}  // namespace hvd::launcher

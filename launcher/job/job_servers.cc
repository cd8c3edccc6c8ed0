#include "launcher/job/job_servers.h"

#include <algorithm>
#include <csignal>
#include <cstddef>

namespace hvd::launcher {

void JobServers::opened(int number, TimePoint now) {
  const JobProcess& process = processes_.at(number);
  running_.insert(number);
  places_.started(process.plan.server, processes_.plan_of(process.host).name, now);
}

bool JobServers::any_runs_on(int host) const {
  return std::ranges::any_of(running_, [&](int number) { return processes_.at(number).host == host; });
}

std::optional<TimePoint> JobServers::ended(int number, ExitStatus status, TimePoint now) {
  const std::optional<TimePoint> again = places_.ended(processes_.at(number).plan.server, now);
  if (!again) failed_ = {number, status};
  return again;
}

void JobServers::start_due(TimePoint now) {
  for (const StartServer& start : places_.take_due(now)) {
    const int host = processes_.host_named(start.host);
    RankPlan plan = *std::ranges::find(plans_[static_cast<std::size_t>(host)], start.server, &RankPlan::server);
    plan.place.rank = next_number_++;
    plan.server_start = start.start;
    running_.insert(plan.place.rank);
    start_(host, plan);
  }
}

void JobServers::leave(int host) const {
  const HostPlan& plan = processes_.plan_of(host);
  if (!plan.ranks.empty() || plan.servers.empty() || !places_.moves_from(plan.name)) return;
  processes_.hosts()[static_cast<std::size_t>(host)]->signal_ranks(SIGTERM);  // only servers are left
}

}  // namespace hvd::launcher

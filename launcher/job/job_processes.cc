#include "launcher/job/job_processes.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

namespace hvd::launcher {

bool JobProcess::is_server() const { return plan.server >= 0; }

JobProcesses::JobProcesses(std::optional<Elastic> elastic, std::function<void(const RankPlan& process)> opened)
    : elastic_(std::move(elastic)), opened_(std::move(opened)) {}

bool JobProcesses::is_elastic() const { return elastic_.has_value(); }

void JobProcesses::add_host(HostPlan plan, std::unique_ptr<Host> host) {
  if (elastic_) {
    slots_.emplace_back();
    set_slots(static_cast<int>(slots_.size()) - 1, std::exchange(plan.ranks, {}));
    plan.servers.clear();
    plan.stopped_limit = elastic_->stopped_limit;
    plan.preemption_script = elastic_->preemption_script;
  } else {
    in_use_.insert(static_cast<int>(plans_.size()));
  }
  plans_.push_back(std::move(plan));
  hosts_.push_back(std::move(host));
}

const std::vector<HostPlan>& JobProcesses::plans() const { return plans_; }

const std::vector<std::unique_ptr<Host>>& JobProcesses::hosts() const { return hosts_; }

const HostPlan& JobProcesses::plan_of(int host) const { return plans_[static_cast<std::size_t>(host)]; }

const std::vector<RankPlan>& JobProcesses::slots_of(int host) const { return slots_[static_cast<std::size_t>(host)]; }

void JobProcesses::set_slots(int host, std::vector<RankPlan> slots) {
  for (RankPlan& slot : slots) slot.reads_input = false;
  slots_[static_cast<std::size_t>(host)] = std::move(slots);
}

int JobProcesses::host_named(const std::string& name) const {
  auto host = static_cast<int>(plans_.size()) - 1;
  while (host > 0 && plan_of(host).name != name) --host;
  return host;
}

JobProcess& JobProcesses::at(int number) { return processes_.at(number); }

const JobProcess& JobProcesses::at(int number) const { return processes_.at(number); }

const std::map<int, JobProcess>& JobProcesses::all() const { return processes_; }

void JobProcesses::open(int host, const RankPlan& plan) {
  const int number = plan.numbers.rank;
  const bool others_may_come = elastic_ && !plan_of(host).rendezvous.address.empty();  // it has an agent
  const std::string host_name = plans_.size() < 2 && !others_may_come ? "" : plan_of(host).name;
  const bool is_numbered = elastic_ && plan.server < 0;
  processes_[number] = {.host = host,
                        .host_name = host_name,
                        .name = (is_numbered ? "process " + std::to_string(number) : process_name(plan)) +
                                (host_name.empty() ? "" : " on " + host_name),
                        .plan = plan};
  opened_(plan);
}

void JobProcesses::start_all() {
  for (std::size_t host = 0; host < plans_.size(); ++host) {
    for (const auto* processes : {&plans_[host].ranks, &plans_[host].servers}) {
      for (const RankPlan& plan : *processes) open(static_cast<int>(host), plan);
    }
  }
  for (std::size_t host = 0; host < hosts_.size(); ++host) hosts_[host]->start(plans_[host]);
}

void JobProcesses::start(int host, const RankPlan& plan) {
  open(host, plan);
  HostPlan& there = plans_[static_cast<std::size_t>(host)];
  HostPlan alone = there;
  alone.ranks.clear();
  alone.servers.clear();
  for (HostPlan* const each : {&there, &alone}) (plan.server >= 0 ? each->servers : each->ranks).push_back(plan);
  in_use_.insert(host);
  hosts_[static_cast<std::size_t>(host)]->start(alone);
}

void JobProcesses::remove(int number) {
  HostPlan& plan = plans_[static_cast<std::size_t>(at(number).host)];
  for (std::vector<RankPlan>* const processes : {&plan.ranks, &plan.servers}) {
    std::erase_if(*processes, [number](const RankPlan& each) { return each.numbers.rank == number; });
  }
}

void JobProcesses::remove_all(int host) {
  plans_[static_cast<std::size_t>(host)].ranks.clear();
  plans_[static_cast<std::size_t>(host)].servers.clear();
}

void JobProcesses::nothing_left(int host) { in_use_.erase(host); }

bool JobProcesses::any_left() const { return !in_use_.empty(); }

void JobProcesses::signal_ranks(int signal) const {
  for (const auto& host : hosts_) host->signal_ranks(signal);
}

void JobProcesses::signal_all(int signal) const {
  for (const auto& host : hosts_) host->signal_all(signal);
}

JobServers::JobServers(ServerPlacement placement, int next_number, JobProcesses& processes, Callbacks callbacks,
                       bool verbose)
    : placement_(std::move(placement)),
      next_number_(next_number),
      processes_(processes),
      callbacks_(std::move(callbacks)),
      verbose_(verbose) {}

void JobServers::add_host(std::vector<RankPlan> servers) { plans_.push_back(std::move(servers)); }

void JobServers::start_with_hosts(TimePoint now) {
  std::vector<HostCount> hosts;
  for (const HostPlan& plan : processes_.plans()) {
    hosts.emplace_back(plan.name, 1);
    for (const RankPlan& server : plan.servers) {
      running_.insert(server.numbers.rank);
      placement_.started(server.server, plan.name, now);
    }
  }
  placement_.hosts_changed(hosts);
}

void JobServers::hosts_changed(const std::vector<HostCount>& hosts) { placement_.hosts_changed(hosts); }

bool JobServers::any_runs() const { return !running_.empty(); }

bool JobServers::any_runs_on(int host) const {
  return std::ranges::any_of(running_, [&](int number) { return processes_.at(number).host == host; });
}

bool JobServers::stopped(int number) { return running_.erase(number) > 0; }

void JobServers::ended(int number, ExitStatus status) {
  stopped(number);
  processes_.remove(number);
  const JobProcess& server = processes_.at(number);
  const std::string what = server.name + " (pid " + std::to_string(server.pid) + ") " + ending_text(status);
  if (verbose_) callbacks_.say(what);
  // In an elastic job no server is done before all processes are.
  if (!callbacks_.wanted() || (status.ok() && !processes_.is_elastic())) return;
  const TimePoint now = Clock::now();
  if (const auto again = placement_.ended(server.plan.server, now)) {
    char delay[32] = "";
    if (*again > now) std::snprintf(delay, sizeof delay, " in %.2g s", seconds(*again - now));
    callbacks_.say(what + "; it is started again" + delay);
    return start_due();
  }
  failed_ = {number, status};
  callbacks_.failed(status,
                    what + ", after it was started again " + std::to_string(ServerPlacement::kMaxFailures) + " times");
}

const std::optional<std::pair<int, ExitStatus>>& JobServers::failed() const { return failed_; }

void JobServers::process_failed() { placement_.process_failed(); }

void JobServers::host_lost(const std::string& host, TimePoint now) { placement_.host_lost(host, now); }

void JobServers::host_preempted(const std::string& host) { placement_.host_preempted(host); }

std::optional<Deadline> JobServers::next_deadline() const {
  return callbacks_.wanted() ? placement_.next_deadline() : std::nullopt;
}

void JobServers::start_due() {
  if (!callbacks_.wanted()) return;
  for (const StartServer& start : placement_.take_due(Clock::now())) {
    const int host = processes_.host_named(start.host);
    RankPlan plan = *std::ranges::find(plans_[static_cast<std::size_t>(host)], start.server, &RankPlan::server);
    plan.numbers.rank = next_number_++;
    plan.server_start = start.start;
    running_.insert(plan.numbers.rank);
    processes_.start(host, plan);
  }
}

void JobServers::evacuate(int host) const {
  const HostPlan& plan = processes_.plan_of(host);
  if (!callbacks_.wanted() || !plan.ranks.empty() || plan.servers.empty() || !placement_.moves_from(plan.name)) return;
  processes_.hosts()[static_cast<std::size_t>(host)]->signal_ranks(SIGTERM);  // only servers are left
}

}  // namespace hvd::launcher

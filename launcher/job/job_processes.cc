#include "launcher/job/job_processes.h"

#include <utility>

namespace hvd::launcher {

void JobProcesses::add_host(HostPlan plan, std::unique_ptr<Host> host) {
  if (elastic_ != nullptr) {
    for (RankPlan& slot : plan.ranks) slot.reads_input = false;
    slots_.push_back(std::exchange(plan.ranks, {}));
    plan.servers.clear();
    plan.stopped_limit = elastic_->stopped_limit;
    plan.preemption_script = elastic_->preemption_script;
  } else {
    in_use_.insert(static_cast<int>(plans_.size()));
  }
  plans_.push_back(std::move(plan));
  hosts_.push_back(std::move(host));
}

int JobProcesses::host_named(const std::string& name) const {
  auto host = static_cast<int>(plans_.size()) - 1;
  while (host > 0 && plan_of(host).name != name) --host;
  return host;
}

void JobProcesses::open(int host, const RankPlan& plan) {
  const int number = plan.place.rank;
  const bool others_may_come = elastic_ != nullptr && !plan_of(host).rendezvous.address.empty();  // it has an agent
  const std::string host_name = plans_.size() < 2 && !others_may_come ? "" : plan_of(host).name;
  const bool is_numbered = elastic_ != nullptr && plan.server < 0;
  processes_[number] = {.host = host,
                        .host_name = host_name,
                        .name = (is_numbered ? "process " + std::to_string(number) : process_name(plan)) +
                                (host_name.empty() ? "" : " on " + host_name),
                        .plan = plan};
}

void JobProcesses::start_all() {
  for (std::size_t host = 0; host < hosts_.size(); ++host) hosts_[host]->start(plans_[host]);
}

void JobProcesses::start(int number) {
  const JobProcess& process = at(number);
  const auto host = static_cast<std::size_t>(process.host);
  HostPlan alone = plans_[host];
  alone.ranks.clear();
  alone.servers.clear();
  for (HostPlan* const plan : {&plans_[host], &alone}) {
    (process.is_server() ? plan->servers : plan->ranks).push_back(process.plan);
  }
  in_use_.insert(process.host);
  hosts_[host]->start(alone);
}

void JobProcesses::remove(int number) {
  HostPlan& plan = plans_[static_cast<std::size_t>(at(number).host)];
  for (std::vector<RankPlan>* const processes : {&plan.ranks, &plan.servers}) {
    std::erase_if(*processes, [number](const RankPlan& each) { return each.place.rank == number; });
  }
}

void JobProcesses::remove_all(int host) {
  plans_[static_cast<std::size_t>(host)].ranks.clear();
  plans_[static_cast<std::size_t>(host)].servers.clear();
}

void JobProcesses::signal_ranks(int signal) const {
  for (const auto& host : hosts_) host->signal_ranks(signal);
}

void JobProcesses::signal_all(int signal) const {
  for (const auto& host : hosts_) host->signal_all(signal);
}

}  // namespace hvd::launcher

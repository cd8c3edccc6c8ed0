#include "launcher/remote/run_on_hosts.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/bootstrap/store_origin.h"
#include "launcher/processes/child_process.h"
#include "launcher/remote/agent_host.h"
#include "launcher/remote/messages.h"
#include "launcher/remote/subtree.h"

namespace hvd::launcher {
namespace {

// An agent on this machine may have reached hvdrun where others cannot: takes the address that most of them used.
void correct_local_addresses(const std::vector<HostsToUse::Entry>& hosts, std::vector<HostDescription>& facts) {
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!hosts[i].is_here) ++counts[facts[i].parent_address];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end()) return;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].is_here) facts[i].local_address = most->first;
  }
}

// Sets the master address and port (of rank 0's host) in all plans, and each host's group rank.
void appoint_master(const std::vector<HostDescription>& facts, std::vector<HostPlan>& plans) {
  const auto has_first = [](const HostPlan& plan) {
    return !plan.ranks.empty() && plan.ranks.front().numbers.rank == 0;
  };
  const auto master = static_cast<std::size_t>(std::ranges::find_if(plans, has_first) - plans.begin());
  int hosts_with_ranks = 0;
  for (HostPlan& plan : plans) {
    plan.rendezvous.group_rank = hosts_with_ranks;
    hosts_with_ranks += plan.ranks.empty() ? 0 : 1;
    plan.rendezvous.master_address = facts[master].local_address;
    plan.rendezvous.master_port = std::to_string(facts[master].reserved_port);
  }
}

std::vector<Subtree::Child> agents_of(const std::vector<HostsToUse::Entry>& hosts) {
  std::vector<Subtree::Child> result;
  for (const HostsToUse::Entry& entry : hosts) {
    result.push_back(
        {.host = static_cast<int>(result.size()), .name = entry.name, .start_command = entry.start_command});
  }
  return result;
}

class RemoteJob {
 public:
  RemoteJob(JobOptions options, HostsToUse hosts, SignalSource& signals)
      : options_(std::move(options)),
        hosts_(std::move(hosts)),
        signals_(signals),
        facts_(hosts_.hosts.size()),
        agents_(agents_of(hosts_.hosts)),
        parents_(agent_tree(agents_)),
        subtree_(loop_, signals, store_,
                 {.certificate = make_certificate(), .addresses = addresses(), .agents = hosts_.agents},
                 {.received = [this](const proto::FromAgent& message) { on_message(message); },
                  .lost = [this](int host, const std::string& cause) { on_lost(host, cause); },
                  .started = [](pid_t) {},
                  .warning = [this](const std::string& line) { say(line); }}) {}

  int run() {
    const TimePoint start = Clock::now();
    if (!wait_for_agents()) return early_signal_ ? 128 + *early_signal_ : 1;
    const auto age = std::chrono::round<std::chrono::milliseconds>(Clock::now() - start).count();
    if (options_.verbose) say("all hosts have come after " + std::to_string(age) + " ms");
    std::vector<HostDescription> facts;
    for (const std::optional<HostDescription>& entry : facts_) facts.push_back(*entry);
    correct_local_addresses(hosts_.hosts, facts);
    std::vector<HostPlan> plans = hosts_.assign(facts);
    int size = 0;
    for (std::size_t host = 0; host < plans.size(); ++host) {
      size += static_cast<int>(plans[host].ranks.size());
      plans[host].rendezvous.address = facts[host].local_address;
    }
    appoint_master(facts, plans);
    Job job(options_, size, loop_, signals_);
    JobHosts hosts;
    hosts.feeds_input = std::ranges::any_of(plans, [](const HostPlan& host) {
      return std::ranges::any_of(host.ranks, [](const RankPlan& rank) { return rank.reads_input; });
    });
    for (std::size_t host = 0; host < plans.size(); ++host) {
      if (plans[host].ranks.empty() && plans[host].servers.empty()) continue;
      const int number = static_cast<int>(host);
      number_in_job_[number] = static_cast<int>(hosts.hosts.size());
      auto entry = std::make_unique<AgentHost>(subtree_, job, number, number_in_job_[number]);
      agent_hosts_[number] = entry.get();
      hosts.plans.push_back(std::move(plans[host]));
      hosts.hosts.push_back(std::move(entry));
    }
    hosts.collect_children = [this] { collect_children(); };
    hosts.pause = [this](bool on) { subtree_.pause(on); };
    hosts.set_failure = [this](const std::string& cause) { set_job_failure(store_, cause); };
    job_ = &job;
    const int code = job.run(std::move(hosts));
    job_ = nullptr;
    agent_hosts_.clear();
    subtree_.dismiss(deadline_after(options_.grace + 1s), signals_, [this] { collect_children(); });
    return code;
  }

 private:
  std::vector<std::string> addresses() const {
    std::vector<std::string> result = addresses_for(hosts_.agents);
    if (std::ranges::any_of(hosts_.hosts, &HostsToUse::Entry::is_here)) result.emplace_back(kLoopback);
    return result;
  }

  std::vector<Subtree::Child> children_of(int parent) const {
    std::vector<Subtree::Child> result;
    for (std::size_t host = 0; host < parents_.size(); ++host) {
      if (parents_[host] == parent) result.push_back(agents_[host]);
    }
    return result;
  }

  // Starts the agents, and waits until all have attached. Returns false if one is missing, or a signal ends hvdrun.
  bool wait_for_agents() {
    loop_.watch(signals_.fd(), EPOLLIN, [this] { on_early_signals(); });
    subtree_.start(children_of(-1));
    const auto all_are_here = [&] {
      return std::all_of(facts_.begin(), facts_.end(), [](const auto& entry) { return entry.has_value(); });
    };
    while (!all_are_here() && !host_is_missing_ && !early_signal_) loop_.run_once(std::nullopt);
    loop_.forget(signals_.fd());
    return !host_is_missing_ && !early_signal_;
  }

  void on_hello(int host, const proto::Hello& hello) {
    const std::size_t index = static_cast<std::size_t>(host);
    if (facts_[index]) return;
    if (hello.version() != HVD_VERSION) {
      return on_lost(host, "hvdrun is version " + hello.version() + " there, and " HVD_VERSION " here");
    }
    facts_[index] = from_message(hello);
    if (options_.verbose) {
      say(hosts_.hosts[index].name + " has come: " + hello.hostname() + " at " + hello.local_address() + ", by " +
          hello.parent_address());
    }
    proto::ToAgent message;
    message.set_host(static_cast<std::uint32_t>(host));
    for (const Subtree::Child& child : children_of(host)) {
      proto::Child& entry = *message.mutable_children()->add_children();
      entry.set_host(static_cast<std::uint32_t>(child.host));
      entry.set_name(child.name);
      entry.set_start_command(child.start_command);
    }
    if (message.has_children()) subtree_.send(message);
  }

  void on_message(const proto::FromAgent& message) {
    const int host = static_cast<int>(message.host());
    if (!knows(host)) return;
    if (message.has_hello()) return on_hello(host, message.hello());
    const auto found = agent_hosts_.find(host);
    if (found != agent_hosts_.end()) return found->second->received(message);
    if (message.has_warning()) say(message.warning().line());
  }

  void on_lost(int host, const std::string& cause) {
    if (!knows(host)) return;
    const auto number = number_in_job_.find(host);
    if (job_ != nullptr && number != number_in_job_.end()) {
      job_->host_lost(number->second, cause);
    } else if (job_ == nullptr && number_in_job_.empty()) {
      host_is_missing_ = true;
      say("host " + hosts_.hosts[static_cast<std::size_t>(host)].name + ": " + cause);
    }
  }

  void on_early_signals() {
    for (const int signal : signals_.take()) {
      if (asks_to_end(signal)) early_signal_ = signal;
    }
    collect_children();
  }

  void collect_children() {
    for (const auto& [pid, status] : reap_children()) subtree_.child_ended(pid, status);
  }

  void say(const std::string& line) {
    if (job_ != nullptr) return job_->warning(line);
    std::fprintf(stderr, "hvdrun: %s\n", line.c_str());
  }

  bool knows(int host) const { return host >= 0 && static_cast<std::size_t>(host) < hosts_.hosts.size(); }

  const JobOptions options_;
  const HostsToUse hosts_;
  SignalSource& signals_;
  EventLoop loop_;
  std::vector<std::optional<HostDescription>> facts_;
  const std::vector<Subtree::Child> agents_;  // by host
  const std::vector<int> parents_;
  std::optional<int> early_signal_;
  bool host_is_missing_ = false;
  Job* job_ = nullptr;                     // set while it runs
  std::map<int, AgentHost*> agent_hosts_;  // owned by the job
  std::map<int, int> number_in_job_;       // for hosts with ranks
  StoreOrigin store_;
  Subtree subtree_;
};

}  // namespace

int run_on_hosts(JobOptions options, HostsToUse hosts, SignalSource& signals) {
  return RemoteJob(std::move(options), std::move(hosts), signals).run();
}

}  // namespace hvd::launcher

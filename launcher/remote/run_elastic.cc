// An elastic job over several hosts, which come and go: hvdrun starts an agent on each host that it may use, and tries
// again where that fails or an agent is lost.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store_origin.h"
#include "launcher/job/job.h"
#include "launcher/membership/polled_script.h"
#include "launcher/remote/agent_host.h"
#include "launcher/remote/messages.h"
#include "launcher/remote/run_on_hosts.h"
#include "launcher/remote/subtree.h"

namespace hvd::launcher {
namespace {

constexpr Duration kFirstRetry = 1s, kLastRetry = 60s;

class ElasticRemoteJob {
 public:
  ElasticRemoteJob(const JobOptions& options, ElasticHosts hosts, SignalSource& signals)
      : options_(options),
        hosts_(std::move(hosts)),
        signals_(signals),
        subtree_(
            loop_, signals, elastic_store_,
            {.certificate = make_certificate(), .addresses = addresses_for(hosts_.agents), .agents = hosts_.agents},
            {.received = [this](const proto::FromAgent& message) { on_message(message); },
             .lost = [this](int agent, const std::string& cause) { on_lost(agent, cause); },
             .started = [](pid_t) {},
             .warning = [this](const std::string& line) { job_.warning(line); }}),
        retry_timer_(loop_, [this] { start_agents(); }),
        job_(options, std::max(options.elastic->num_proc, std::min(options.elastic->max_np, 2)), loop_, signals) {}

  int run() {
    if (hosts_.discovery_script.empty()) {
      set_wanted(hosts_.fixed);
    } else {
      discovery_ = std::make_unique<HostDiscovery>(
          loop_, signals_, hosts_.discovery_script, hosts_.discovery_interval,
          HostDiscovery::Callbacks{.found = [this](const std::vector<HostSlots>& found) { set_wanted(found); },
                                   .warning = [this](const std::string& line) { job_.warning(line); }});
    }
    JobHosts hosts;
    hosts.elastic_store = &elastic_store_;
    hosts.set_failure = [](const std::string&) {};  // processes that wait for a place are dismissed
    hosts.collect_children = [this] { collect_children(); };
    hosts.pause = [this](bool on) { subtree_.pause(on); };
    const int code = job_.run(std::move(hosts));
    dismiss();
    return code;
  }

 private:
  // A host that was named, and its agent: the last one, if several were started.
  struct Entry {
    HostSlots wanted;
    int place = 0;                  // among the hosts that are named
    int agent = -1;                 // its number; -1: none runs
    int in_job = -1;                // the host's number there, once its agent has attached
    int planned = 0;                // slots
    HostDescription description{};  // once its agent has attached
    Duration retry = kFirstRetry;
    TimePoint next_try{};
  };

  // Hosts that are not named any more keep their agents, and get no slots.
  void set_wanted(const std::vector<HostSlots>& hosts) {
    if (is_over_) return;
    for (auto& [name, entry] : entries_) entry.wanted.slots = 0;
    int place = 0;
    for (const HostSlots& host : hosts) {
      entries_[host.host].wanted = host;
      entries_[host.host].place = place++;
    }
    for (auto& [name, entry] : entries_) plan_more_slots(name, entry);
    start_agents();
    offer_slots();
  }

  // Slots that a host gets later have CPUs and GPUs of their own, too. Processes that run there keep theirs.
  void plan_more_slots(const std::string& name, Entry& entry) {
    if (entry.in_job < 0 || entry.wanted.slots.value_or(0) <= entry.planned) return;
    try {
      std::vector<RankPlan> slots = hosts_.plan(entry.wanted, entry.description).ranks;
      entry.planned = static_cast<int>(slots.size());
      job_.set_slots(entry.in_job, std::move(slots));
    } catch (const Error& error) {
      job_.warning("host " + name + ": " + error.what());
      entry.wanted.slots = entry.planned;
    }
  }

  void start_agents() {
    for (auto& [name, entry] : entries_) {
      if (entry.agent >= 0 || entry.wanted.slots == 0 || Clock::now() < entry.next_try) continue;
      entry.agent = next_agent_++;
      names_[entry.agent] = name;
      try {
        subtree_.start({{.host = entry.agent, .name = name, .start_command = hosts_.start_command(entry.wanted)}});
      } catch (const Error& error) {
        on_lost(entry.agent, error.what());
      }
    }
    std::optional<Deadline> next;  // also of agents that could not be started just now
    for (const auto& [name, entry] : entries_) {
      if (entry.agent < 0 && entry.wanted.slots != 0) next = earlier(next, entry.next_try);
    }
    retry_timer_.set(next);
  }

  void offer_slots() {
    std::vector<HostCount> hosts;
    for (const auto& [name, entry] : entries_) {
      if (entry.in_job >= 0) hosts.emplace_back(name, entry.wanted.slots.value_or(entry.planned));
    }
    std::ranges::stable_sort(hosts, {}, [this](const HostCount& host) { return entries_.at(host.first).place; });
    job_.use_hosts(hosts);
  }

  void on_hello(int agent, const proto::Hello& hello) {
    const std::string& name = names_.at(agent);
    Entry& entry = entries_.at(name);
    if (entry.agent != agent) return subtree_.dismiss(agent);  // it was given up, and comes late
    if (entry.wanted.slots == 0) {                             // it is not named any more
      entry.agent = -1;
      return subtree_.dismiss(agent);
    }
    if (entry.in_job >= 0) return;
    if (hello.version() != HVD_VERSION) {
      return reject(agent, "hvdrun is version " + hello.version() + " there, and " HVD_VERSION " here");
    }
    const HostDescription facts = from_message(hello);
    try {
      HostPlan plan = hosts_.plan(entry.wanted, facts);
      plan.rendezvous.address = facts.local_address;
      entry.planned = static_cast<int>(plan.ranks.size());
      entry.description = facts;
      entry.in_job = job_.next_host();
      auto host = std::make_unique<AgentHost>(subtree_, job_, agent, entry.in_job);
      agent_hosts_[agent] = host.get();
      job_.add_host(std::move(plan), std::move(host));
    } catch (const Error& error) {
      return reject(agent, error.what());
    }
    entry.retry = kFirstRetry;
    if (options_.verbose) job_.warning(name + " has come: " + hello.hostname() + " at " + hello.local_address());
    offer_slots();
  }

  // The agent is of no use to the job: it ends, and another one is started later.
  void reject(int agent, const std::string& cause) {
    subtree_.dismiss(agent);
    on_lost(agent, cause);
  }

  void on_message(const proto::FromAgent& message) {
    const int agent = static_cast<int>(message.host());
    if (is_over_ && message.has_hello()) return subtree_.dismiss(agent);
    if (!names_.contains(agent)) return;
    if (message.has_hello()) return on_hello(agent, message.hello());
    const auto found = agent_hosts_.find(agent);
    if (found != agent_hosts_.end()) return found->second->received(message);
    if (message.has_warning()) job_.warning(message.warning().line());
  }

  void on_lost(int agent, const std::string& cause) {
    const auto name = names_.find(agent);
    if (name == names_.end() || entries_.at(name->second).agent != agent) return;
    Entry& entry = entries_.at(name->second);
    const int in_job = std::exchange(entry.in_job, -1);
    entry.agent = -1;
    entry.next_try = Clock::now() + entry.retry;
    entry.retry = std::min(2 * entry.retry, kLastRetry);
    agent_hosts_.erase(agent);
    if (in_job >= 0) {
      job_.host_lost(in_job, cause);
    } else {
      job_.warning("host " + name->second + ": " + cause);
    }
    start_agents();
  }

  void collect_children() {
    for (const auto& [pid, status] : reap_children()) {
      subtree_.child_ended(pid, status);
      if (discovery_) discovery_->child_ended(pid, status);
      job_.child_ended(pid, status);
    }
  }

  // The job has ended: dismisses the agents, and waits for them and the commands that started them. The script, which
  // may take longer to end, comes last.
  void dismiss() {
    is_over_ = true;
    entries_.clear();
    names_.clear();
    subtree_.dismiss(deadline_after(options_.grace + 1s), signals_, [this] { collect_children(); });
    discovery_.reset();
  }

  const JobOptions options_;
  const ElasticHosts hosts_;
  SignalSource& signals_;
  EventLoop loop_;
  StoreOrigin store_;
  ElasticStore elastic_store_{store_};
  std::map<std::string, Entry> entries_;   // by host
  std::map<int, std::string> names_;       // of the hosts, by agent
  std::map<int, AgentHost*> agent_hosts_;  // by agent; owned by the job
  int next_agent_ = 0;
  bool is_over_ = false;  // no agent is started any more
  Subtree subtree_;
  std::unique_ptr<HostDiscovery> discovery_;  // null: the hosts are fixed
  Timer retry_timer_;
  Job job_;
};

}  // namespace

int run_elastic(const JobOptions& options, ElasticHosts hosts, SignalSource& signals) {
  return ElasticRemoteJob(options, std::move(hosts), signals).run();
}

}  // namespace hvd::launcher

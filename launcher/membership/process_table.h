// The current processes and hosts of an elastic job, and a detector of hosts that cannot reach each other, from which
// Membership decides. Pure; time is an argument.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/bootstrap/elastic.h"

namespace hvd::launcher {

// A host, by name, and how many processes it may have.
using HostCount = std::pair<std::string, int>;

// The hosts, and when each may next get processes: one on which a process has failed cools down, for a time that is
// doubled with each failure until one succeeds.
class HostTable {
 public:
  struct Host {
    int slots = 0;  // 0: it may not be used
    int order = 0;  // in the list of hosts
    int failures = 0;
    bool preempted = false;  // gets no processes until it was lost, and has come back
    TimePoint usable_from{};
    auto operator<=>(const Host&) const = default;
  };

  HostTable(Duration cooldown_min, Duration cooldown_max) : cooldown_min_(cooldown_min), cooldown_max_(cooldown_max) {}

  // All hosts that may be used now; the others keep their failures.
  void hosts_changed(const std::vector<HostCount>& hosts);
  void host_preempted(const std::string& host) { hosts_[host].preempted = true; }
  void host_lost(const std::string& host, TimePoint now);
  void cool_down(const std::string& host, TimePoint now);
  void process_succeeded(const std::string& host) { hosts_[host].failures = 0; }

  const std::map<std::string, Host>& all() const { return hosts_; }
  int order_of(const std::string& host) const { return hosts_.at(host).order; }
  bool all_are_preempted() const {
    return std::ranges::all_of(hosts_,
                               [](const auto& host) { return host.second.preempted || host.second.slots == 0; });
  }

  auto operator<=>(const HostTable&) const = default;

 private:
  Duration cooldown_min_, cooldown_max_;
  std::map<std::string, Host> hosts_;
};

// The processes that live, the place of each in the job's epochs, and which were in the last one.
class ProcessTable {
 public:
  enum class ProcessState {
    starting,  // it has not arrived yet
    waiting,
    member,    // of the running epoch; while gathering: of the last one, and has not arrived again
    failing,   // it has not ended yet, and keeps its slot until then
    expelled,  // it runs, but is not counted
  };
  struct Process {
    std::string host;
    int slot = 0;
    ProcessState state = ProcessState::starting;
    bool is_leaving = false;  // it gets no place in the next epoch
    bool has_state = false;   // of the job; an expelled one has none
    bool is_surplus = false;  // it leaves only because its host has too few slots
    auto operator<=>(const Process&) const = default;
  };

  // Adds a process, with the next number and the lowest slot of the host that no process living there has.
  const std::pair<const int, Process>& start(const std::string& host);
  void erase(int process) { processes_.erase(process); }
  // Returns whether the host had any.
  bool erase_host(const std::string& host) {
    return std::erase_if(processes_, [&](const auto& entry) { return entry.second.host == host; }) > 0;
  }
  // The next epoch begins, with these processes by rank. Those of the first one have the job's state.
  void begin_epoch(std::vector<int> members);
  // Expels the processes for which `predicate` holds, and returns their numbers.
  template <typename Predicate>
  std::vector<int> expel(Predicate predicate) {
    std::vector<int> expelled;
    for (auto& [number, process] : processes_) {
      if (!predicate(process)) continue;
      process.state = ProcessState::expelled;
      process.has_state = false;
      expelled.push_back(number);
    }
    return expelled;
  }
  // All processes of the host are to leave, whatever slots it has.
  void mark_leaving(const std::string& host) {
    for (auto& [number, process] : processes_) {
      if (process.host != host) continue;
      process.is_leaving = true;
      process.is_surplus = false;
    }
  }
  // Marks as leaving the processes beyond the host's slots. Kept first are those with the job's state, then those
  // furthest in their progress, then the oldest.
  void mark_surplus(const std::string& host, int slots);
  // The host has more slots again: those that were to leave for want of one stay, unless they were dismissed already.
  void keep_surplus(const std::string& host) {
    for (auto& [number, process] : processes_) {
      if (process.host != host || !process.is_surplus || process.state == ProcessState::expelled) continue;
      process.is_leaving = process.is_surplus = false;
    }
  }
  // They are to leave, and do not bring the job's state to another epoch.
  void mark_left_out(const std::string& host) {
    mark_leaving(host);
    for (auto& [number, process] : processes_) process.has_state = process.has_state && process.host != host;
  }
  // Nobody is to leave any more.
  void keep_all() {
    for (auto& [number, process] : processes_) process.is_leaving = process.is_surplus = false;
  }

  // Null: it does not live.
  Process* find(int process) {
    const auto found = processes_.find(process);
    return found == processes_.end() ? nullptr : &found->second;
  }
  // By number.
  const std::map<int, Process>& all() const { return processes_; }
  bool alive(int process) const { return processes_.contains(process); }
  // Whether it has said that it fails, and has not ended yet.
  bool fails(int process) const { return alive(process) && processes_.at(process).state == ProcessState::failing; }
  template <typename Predicate>
  int count(Predicate predicate) const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [&](const auto& entry) { return predicate(entry.second); }));
  }
  int count_in(ProcessState state) const {
    return count([state](const Process& process) { return process.state == state; });
  }
  // Without those that are to leave.
  int count_staying_in(ProcessState state) const {
    return count([state](const Process& process) { return process.state == state && !process.is_leaving; });
  }
  int started() const { return next_process_; }  // so far

  int epoch() const { return epoch_; }  // the last that has begun; 0: none
  // Of the last epoch, by rank; some may have ended.
  const std::vector<int>& members() const { return members_; }
  // The process's rank in the last epoch that has begun; empty: it was not in it.
  std::optional<int> rank_of(int process) const {
    const auto found = std::ranges::find(members_, process);
    return found == members_.end() ? std::nullopt : std::optional(static_cast<int>(found - members_.begin()));
  }
  // The place that a process which has not arrived yet would have if the next epoch began now.
  ExpectedRank expected_rank_of(int process) const;

  auto operator<=>(const ProcessTable&) const = default;

 private:
  int epoch_ = 0;
  std::vector<int> members_;
  std::map<int, Process> processes_;
  int next_process_ = 0;
};

// Epochs that fail in succession, because ranks cannot reach each other, before a host is left out.
constexpr int kMaxFailedEpochs = 2;
// An epoch that lasted longer has nothing to do with the failure of the one before.
constexpr Duration kLongEpoch = std::chrono::minutes(5);

// Finds two hosts that cannot reach each other, from what ranks report of epochs that have failed in succession
// although no process was lost.
class PartitionDetector {
 public:
  // A rank on the first host could not reach one on the other.
  void report(const std::string& from, const std::string& to) {
    const std::pair hosts(from, to);
    if (std::ranges::find(reports_, hosts) == reports_.end()) reports_.push_back(hosts);
  }
  void epoch_begins(TimePoint now) { began_ = now; }
  void epoch_ends(TimePoint now) {
    if (now - began_ > kLongEpoch) forget();
  }
  // The epoch has failed, and all its processes came back. Returns whether this is to be taken for a partition.
  bool epoch_failed() { return ++failed_epochs_ >= kMaxFailedEpochs && !reports_.empty(); }
  // Counts anew: a process was synchronised or lost, or a host is left out.
  void forget() {
    failed_epochs_ = 0;
    reports_.clear();
  }

  // The host that most others report as unreachable, and the one with which it has most reports in common. Ranks also
  // report what they were told by others, so two hosts that report each other go before. Of equal ones the last in the
  // list of hosts. Requires a report.
  std::pair<std::string, std::string> hosts_apart(const HostTable& hosts) const;

  auto operator<=>(const PartitionDetector&) const = default;

 private:
  TimePoint began_{};  // the last epoch
  int failed_epochs_ = 0;
  std::vector<std::pair<std::string, std::string>> reports_;  // each once
};

}  // namespace hvd::launcher

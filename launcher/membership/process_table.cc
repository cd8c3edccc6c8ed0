#include "launcher/membership/process_table.h"

#include <cstddef>
#include <tuple>

namespace hvd::launcher {

void HostTable::hosts_changed(const std::vector<HostCount>& hosts) {
  for (auto& [name, host] : hosts_) host.slots = 0;
  int order = 0;
  for (const auto& [name, slots] : hosts) {
    hosts_[name].slots = slots;
    hosts_[name].order = order++;
  }
}

void HostTable::host_lost(const std::string& host, TimePoint now) {
  hosts_[host].slots = 0;
  hosts_[host].preempted = false;
  cool_down(host, now);
}

void HostTable::cool_down(const std::string& host, TimePoint now) {
  Host& entry = hosts_[host];
  Duration delay = cooldown_min_;
  for (int i = 0; i < entry.failures && delay < cooldown_max_; ++i) delay *= 2;
  ++entry.failures;
  entry.usable_from = now + std::min(delay, cooldown_max_);
}

const std::pair<const int, ProcessTable::Process>& ProcessTable::start(const std::string& host) {
  int slot = 0;
  const auto has_slot = [&](const Process& process) { return process.host == host && process.slot == slot; };
  while (count(has_slot) > 0) ++slot;
  return *processes_.emplace(next_process_++, Process{.host = host, .slot = slot}).first;
}

void ProcessTable::begin_epoch(std::vector<int> members) {
  members_ = std::move(members);
  for (const int number : members_) {
    Process& process = processes_.at(number);
    process.state = ProcessState::member;
    process.has_state = process.has_state || epoch_ == 0;
  }
  ++epoch_;
}

void ProcessTable::mark_surplus(const std::string& host, int slots) {
  std::vector<std::tuple<bool, ProcessState, int>> staying;
  for (const auto& [number, process] : processes_) {
    if (process.host != host || process.state == ProcessState::expelled || process.is_leaving) continue;
    staying.emplace_back(process.has_state, process.state, -number);
  }
  std::ranges::sort(staying);
  for (std::size_t i = 0; i + static_cast<std::size_t>(slots) < staying.size(); ++i) {
    Process& process = processes_.at(-std::get<int>(staying[i]));
    process.is_leaving = process.is_surplus = true;
  }
}

ExpectedRank ProcessTable::expected_rank_of(int process) const {
  const auto newcomer = processes_.find(process);
  if (newcomer == processes_.end() || epoch_ == 0) return {};
  const std::string& own_host = newcomer->second.host;
  const int slot = newcomer->second.slot;
  std::vector<std::string> hosts;  // in the order of their first ranks
  int members = 0, here = 0;
  for (const int number : members_) {
    const auto member = processes_.find(number);
    if (member == processes_.end()) continue;
    const std::string& host = member->second.host;
    ++members;
    here += host == own_host ? 1 : 0;
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  const int cross_rank = static_cast<int>(std::ranges::find(hosts, own_host) - hosts.begin());
  return {.size = members + 1,
          .local_rank = slot,
          .local_size = std::max(here, slot) + 1,
          .cross_rank = cross_rank,
          .cross_size = std::max(static_cast<int>(hosts.size()), cross_rank + 1)};
}

std::pair<std::string, std::string> PartitionDetector::hosts_apart(const HostTable& hosts) const {
  using Reports = std::map<std::string, std::pair<int, int>>;  // by host: reports in both directions, and all
  const auto add = [this](std::pair<int, int>& counts, const std::string& from, const std::string& to) {
    if (std::ranges::find(reports_, std::pair(to, from)) != reports_.end()) ++counts.first;
    ++counts.second;
  };
  const auto most = [&hosts](const Reports& counts) {
    const auto weight = [&hosts](const auto& entry) { return std::pair(entry.second, hosts.order_of(entry.first)); };
    return std::ranges::max_element(counts, {}, weight)->first;
  };
  Reports reports, in_common;
  for (const auto& [from, to] : reports_) add(reports[to], from, to);
  const std::string host = most(reports);
  for (const auto& [from, to] : reports_) {
    if (to == host) add(in_common[from], from, to);
    if (from == host) add(in_common[to], from, to);
  }
  return {host, most(in_common)};
}

}  // namespace hvd::launcher

#include "launcher/membership/server_placement.h"

#include <algorithm>

namespace hvd::launcher {
namespace {

constexpr Duration kFirstDelay = 50ms, kMaxDelay = 1s;
constexpr Duration kLongRun = 60s;

Duration delay_after(int failures) {
  if (failures < 2) return Duration::zero();
  return std::min<Duration>(kFirstDelay * (1 << std::min(failures - 2, 16)), kMaxDelay);
}

}  // namespace

ServerPlacement::ServerPlacement(int servers, int slots)
    : slots_needed_(slots), servers_(static_cast<std::size_t>(servers)) {}

void ServerPlacement::hosts_changed(const std::vector<HostCount>& hosts) {
  hosts_.clear();
  int slots = 0;
  for (const auto& [name, count] : hosts) {
    slots += count;
    if (count > 0) hosts_.push_back(name);
  }
  has_enough_slots_ = has_enough_slots_ || slots >= slots_needed_;
}

void ServerPlacement::started(int server, const std::string& host, TimePoint now) {
  Server& entry = servers_[static_cast<std::size_t>(server)];
  entry.host = host;
  entry.runs = true;
  entry.since = now;
  ++entry.starts;
}

std::optional<TimePoint> ServerPlacement::ended(int server, TimePoint now) {
  Server& entry = servers_[static_cast<std::size_t>(server)];
  entry.runs = false;
  entry.failures = now >= entry.since + kLongRun ? 1 : entry.failures + 1;
  entry.is_given_up = entry.failures > kMaxFailures;
  entry.due = now + delay_after(entry.failures);
  return entry.is_given_up ? std::nullopt : std::optional(entry.due);
}

void ServerPlacement::process_failed() { has_enough_slots_ = true; }

void ServerPlacement::host_lost(const std::string& host, TimePoint now) {
  std::erase(hosts_, host);
  preempted_.erase(host);
  has_enough_slots_ = true;  // the job may begin without this host
  for (Server& server : servers_) {
    if (server.host != host) continue;
    server.host.clear();
    if (server.runs) server.due = now;
    server.runs = false;
  }
}

void ServerPlacement::host_preempted(const std::string& host) { preempted_.insert(host); }

std::vector<std::string> ServerPlacement::usable_hosts() const {
  std::vector<std::string> usable = hosts_;
  std::erase_if(usable, [this](const std::string& host) { return preempted_.contains(host); });
  return usable.empty() ? hosts_ : usable;
}

bool ServerPlacement::moves_from(const std::string& host) const {
  if (!preempted_.contains(host)) return false;
  const std::vector<std::string> usable = usable_hosts();
  return !usable.empty() && std::ranges::find(usable, host) == usable.end();
}

std::string ServerPlacement::host_for(const Server& server) const {
  const std::vector<std::string> usable = usable_hosts();
  if (std::ranges::find(usable, server.host) != usable.end()) return server.host;
  const auto servers_on = [this](const std::string& host) { return std::ranges::count(servers_, host, &Server::host); };
  const auto least = std::ranges::min_element(usable, {}, servers_on);
  return least == usable.end() ? "" : *least;
}

bool ServerPlacement::waits(const Server& server) const { return !server.runs && !server.is_given_up; }

std::vector<StartServer> ServerPlacement::take_due(TimePoint now) {
  std::vector<StartServer> due;
  if (!has_enough_slots_) return due;
  for (std::size_t number = 0; number < servers_.size(); ++number) {
    Server& server = servers_[number];
    if (!waits(server) || now < server.due) continue;
    const std::string host = host_for(server);
    if (host.empty()) continue;
    due.push_back({.server = static_cast<int>(number), .start = server.starts, .host = host});
    started(static_cast<int>(number), host, now);
  }
  return due;
}

std::optional<Deadline> ServerPlacement::next_deadline() const {
  std::optional<Deadline> next;
  if (!has_enough_slots_ || hosts_.empty()) return next;
  for (const Server& server : servers_) {
    if (waits(server)) next = earlier(next, server.due);
  }
  return next;
}

}  // namespace hvd::launcher

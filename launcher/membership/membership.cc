#include "launcher/membership/membership.h"

#include <cstddef>
#include <tuple>

namespace hvd::launcher {

// ---- Events

void Membership::hosts_changed(const std::vector<HostCount>& hosts, TimePoint now) {
  for (auto& [name, host] : hosts_) host.slots = 0;
  int place = 0;
  for (const auto& [name, slots] : hosts) {
    hosts_[name].slots = slots;
    hosts_[name].place = place++;
  }
  advance(now);
}

void Membership::process_arrived(int process, TimePoint now) {
  const auto found = processes_.find(process);
  if (found == processes_.end() || over()) return;
  const bool nobody_waited = running() && !newcomers_wait();
  const Place before = std::exchange(found->second.place, Place::waiting);
  if (nobody_waited) settling_until_ = now + kLongestSettling;
  if (before == Place::expelled) found->second.has_state = false;
  if (before == Place::member && running()) {
    gather("rank " + std::to_string(*rank_of(process)) + " has left the epoch", now);
  }
  advance(now);
}

void Membership::process_synchronized(int process, TimePoint now) {
  const auto found = processes_.find(process);
  if (found == processes_.end() || found->second.place != Place::member) return;
  found->second.has_state = true;
  hosts_[found->second.host].failures = 0;
  if (running()) forget_failed_epochs();
  advance(now);
}

void Membership::process_fails(int process, const std::string& cause, TimePoint now) {
  const auto found = processes_.find(process);
  if (found == processes_.end() || over() || found->second.place == Place::failing) return;
  const Process before = found->second;
  found->second.place = Place::failing;
  found->second.has_state = false;
  note_failure(before, cause, now);
  advance(now);
}

void Membership::process_ended(int process, ProcessEnd how, const std::string& cause, TimePoint now) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  const Process ended = found->second;
  const bool goes_on = !ended.leaves || state_is_leaving();
  processes_.erase(found);
  if (how == ProcessEnd::failed || how == ProcessEnd::failed_for_good) {
    last_failure_ = cause;
    if (how == ProcessEnd::failed_for_good && is_first()) return end_job("no restart mends what has failed");
    if (ended.place != Place::failing) note_failure(ended, cause, now);
  } else if (goes_on && (ended.place == Place::member || (is_first() && ended.place != Place::failing))) {
    finishing_ = true;
  }
  advance(now);
}

void Membership::process_cannot_reach(int process, std::int64_t rank) {
  const auto found = processes_.find(process);
  if (found == processes_.end() || found->second.place != Place::member) return;
  if (rank < 0 || rank >= static_cast<std::int64_t>(members_.size())) return;
  const auto other = processes_.find(members_[static_cast<std::size_t>(rank)]);
  if (other == processes_.end() || other->second.host == found->second.host) return;
  const std::pair report(found->second.host, other->second.host);
  if (std::ranges::find(unreachable_, report) == unreachable_.end()) unreachable_.push_back(report);
}

void Membership::process_preempted(int process, TimePoint now) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  found->second.leaves = true;
  cool_down(found->second.host, now);
  advance(now);
}

void Membership::host_preempted(const std::string& host, TimePoint now) {
  hosts_[host].preempted = true;
  if (options_.fixed_hosts && all_hosts_are_preempted()) return end_early(now);
  for (auto& [number, process] : processes_) process.leaves = process.leaves || process.host == host;
  advance(now);
}

void Membership::end_early(TimePoint now) {
  if (over() || std::exchange(ends_early_, true)) return;
  for (auto& [number, process] : processes_) process.leaves = false;  // only once it has saved the state
  advance(now);
}

void Membership::host_lost(const std::string& host, const std::string& cause, TimePoint now) {
  const bool had_member =
      count([&](const Process& process) { return process.host == host && process.place == Place::member; }) > 0;
  const bool had_any = std::erase_if(processes_, [&](const auto& entry) { return entry.second.host == host; }) > 0;
  hosts_[host].slots = 0;
  hosts_[host].preempted = false;
  cool_down(host, now);
  last_failure_ = cause;
  if (had_member) epoch_failure_ = cause;
  if (had_any) note_first_failure();
  if (had_member && running()) gather(cause, now);
  advance(now);
}

// ---- What follows from them

void Membership::advance(TimePoint now) {
  if (!over()) give_up_waiting(now);
  if (!over()) mark_leaving();
  if (!over()) dismiss_leaving();
  if (!over()) start_processes(now);
  if (!over()) end_if_hopeless();
  if (!over()) begin_if_complete(now);
  if (!over()) announce_if_needed(now);
}

// A host with fewer slots than processes keeps those that have the state, and then those that are the furthest.
void Membership::mark_leaving() {
  if (ends_early_) return;
  for (const auto& [name, host] : hosts_) {
    std::vector<std::tuple<bool, Place, int>> staying;
    for (const auto& [number, process] : processes_) {
      if (process.host != name || process.place == Place::expelled || process.leaves) continue;
      staying.emplace_back(process.has_state, process.place, -number);
    }
    std::ranges::sort(staying);
    for (std::size_t i = 0; i + static_cast<std::size_t>(host.slots) < staying.size(); ++i) {
      processes_.at(-std::get<int>(staying[i])).leaves = true;
    }
  }
}

void Membership::dismiss_leaving() {
  const bool keeps_state = state_is_leaving();
  for (auto& [number, process] : processes_) {
    if (!process.leaves || process.place != Place::waiting || (keeps_state && process.has_state)) continue;
    process.place = Place::expelled;
    has_left_early_ = has_left_early_ || (ends_early_ && process.has_state);
    process.has_state = false;
    actions_.emplace_back(DismissProcess{number});
  }
}

void Membership::start_processes(TimePoint now) {
  for (const auto& [name, host] : hosts_) {
    while (may_start_on(name, host) && now >= host.usable_from) {
      const StartProcess start{.process = next_process_++, .host = name, .slot = free_slot(name)};
      processes_.emplace(start.process, Process{.host = name, .slot = start.slot});
      actions_.emplace_back(start);
    }
  }
}

// Who has not come by now is not waited for any longer.
void Membership::give_up_waiting(TimePoint now) {
  if (running() || now < gathering_since_ + options_.elastic_timeout) return;
  for (auto& [number, process] : processes_) {
    if (process.place != Place::member && !(is_first() && process.place == Place::starting)) continue;
    process.place = Place::expelled;
    actions_.emplace_back(ExpelProcess{number});
  }
  if (can_begin()) return begin();
  const auto waited = static_cast<long>(seconds(options_.elastic_timeout));
  end_job(std::to_string(candidates().size()) + " processes have come within " + std::to_string(waited) +
          " s (--elastic-timeout), of at least " + std::to_string(options_.min_np));
}

void Membership::end_if_hopeless() {
  if (ends_early_ && is_first()) return end_job({}, true);
  if (count_at(Place::failing) > 0) return;  // they are left to end by themselves, and to say why
  const int in_epoch = count_at(Place::member);
  const bool nobody_is_left = in_epoch + count_at(Place::waiting) + count_at(Place::starting) == 0;
  const int trained =
      in_epoch + count([](const Process& process) { return process.place == Place::waiting && process.has_state; });
  if (finishing_ && (nobody_is_left || (!is_first() && trained == 0))) return end_job(epoch_failure_);
  // A member that is not known to have the state may just not have said so before another one finished.
  if (state_is_lost() && !finishing_ && !has_left_early_) {
    return end_job("every process that had the job's state is gone");
  }
  if (state_is_lost() && has_left_early_ && count_at(Place::expelled) == 0) return end_job({}, true);
  if (all_have_failed()) return end_job("every process has failed before the job began");
  const bool some_may_arrive = in_epoch > 0 || (is_first() && count_at(Place::starting) > 0);
  if (finishing_ && !running() && !some_may_arrive && !can_begin()) {
    end_job("too few processes are left, after others have finished");
  }
}

void Membership::begin_if_complete(TimePoint now) {
  if (running() || count_at(Place::member) > 0 || !can_begin()) return;
  const bool too_early = static_cast<int>(candidates().size()) < options_.num_proc && first_tries_ == 0 && !finishing_;
  if (is_first() && (count_at(Place::starting) > 0 || too_early)) return;
  if (may_not_change() && count_at(Place::failing) > 0) return;  // the job ends, and they are to say why
  if (!is_first()) leave_out_unreachable_host(now);
  if (over()) return;
  began_ = now;
  begin();
}

void Membership::leave_out_unreachable_host(TimePoint now) {
  const auto waits = [this](int number) {
    const auto found = processes_.find(number);
    return found != processes_.end() && found->second.place == Place::waiting && !found->second.leaves;
  };
  if (!std::ranges::all_of(members_, waits)) return forget_failed_epochs();
  if ((announced_ && !ends_early_) || ++failed_epochs_ < kMostFailedEpochs || unreachable_.empty()) return;
  auto [host, other] = hosts_apart();
  forget_failed_epochs();
  if (!can_begin_without(host)) std::swap(host, other);
  if (!can_begin_without(host)) {
    return end_job("hosts " + other + " and " + host + " cannot reach each other, and without one of them fewer than " +
                   std::to_string(fewest()) + " processes are left (--min-np)");
  }
  for (auto& [number, process] : processes_) {
    if (process.host != host) continue;
    process.leaves = true;
    process.has_state = false;
  }
  cool_down(host, now);
  actions_.emplace_back(LeaveOutHost{.host = host, .other = other});
  dismiss_leaving();
}

void Membership::begin() {
  if (may_not_change()) {
    return end_job("the job was reset " + std::to_string(*options_.reset_limit) + " times (--reset-limit)");
  }
  phase_ = Phase::running;
  announced_ = false;
  epoch_failure_.clear();
  first_tries_ = 0;
  members_ = candidates();
  for (const int number : members_) {
    Process& process = processes_.at(number);
    process.place = Place::member;
    process.has_state = process.has_state || is_first();
  }
  actions_.emplace_back(BeginEpoch{.epoch = ++epoch_, .processes = members_});
}

void Membership::announce_if_needed(TimePoint now) {
  if (!running() || announced_ || finishing_) return;
  if (ends_early_) {
    announced_ = true;
    actions_.emplace_back(AnnounceChange{.epoch = epoch_, .ends = true});
    return;
  }
  const bool removes = staying() < count_at(Place::member);
  const bool adds = newcomers_wait() && (removes || starting() == 0 || now >= settling_until_);
  if (!adds && !removes) return;
  announced_ = true;
  actions_.emplace_back(AnnounceChange{.epoch = epoch_, .adds = adds, .removes = removes});
}

void Membership::gather(const std::string& cause, TimePoint now) {
  phase_ = Phase::gathering;
  gathering_since_ = now;
  if (now - began_ > kLongEpoch) forget_failed_epochs();
  actions_.emplace_back(BreakEpoch{.epoch = epoch_, .cause = cause});
}

void Membership::end_job(const std::string& failure, bool early) {
  phase_ = Phase::over;
  for (const auto& [number, process] : processes_) {
    if (process.place == Place::waiting) actions_.emplace_back(DismissProcess{number});
  }
  const bool names_another = !failure.empty() && !last_failure_.empty() && failure != last_failure_;
  actions_.emplace_back(EndJob{failure + (names_another ? "; the last failure: " + last_failure_ : ""), early});
}

void Membership::note_failure(const Process& process, const std::string& cause, TimePoint now) {
  last_failure_ = cause;
  note_first_failure();
  cool_down(process.host, now);
  if (process.place != Place::member) return;
  epoch_failure_ = cause;
  if (running()) gather(cause, now);
}

void Membership::cool_down(const std::string& host, TimePoint now) {
  Host& entry = hosts_[host];
  Duration delay = options_.cooldown_min;
  for (int i = 0; i < entry.failures && delay < options_.cooldown_max; ++i) delay *= 2;
  ++entry.failures;
  entry.usable_from = now + std::min(delay, options_.cooldown_max);
}

// ---- What is

std::optional<Deadline> Membership::next_deadline() const {
  std::optional<Deadline> next;
  if (over()) return next;
  if (!running()) next = gathering_since_ + options_.elastic_timeout;
  if (newcomers_wait()) next = settling_until_;
  for (const auto& [name, host] : hosts_) {
    if (may_start_on(name, host)) next = earlier(next, host.usable_from);
  }
  return next;
}

std::optional<int> Membership::rank_of(int process) const {
  const auto found = std::find(members_.begin(), members_.end(), process);
  return found == members_.end() ? std::nullopt : std::optional(static_cast<int>(found - members_.begin()));
}

Prospect Membership::prospect_of(int process) const {
  const auto found = processes_.find(process);
  if (found == processes_.end() || is_first()) return {};
  const auto& [own_host, slot, place, leaves, has_state] = found->second;
  std::vector<std::string> hosts;  // in the order of their first ranks
  int members = 0, here = 0;
  for (const int number : members_) {
    const auto member = processes_.find(number);
    if (member == processes_.end()) continue;
    ++members;
    here += member->second.host == own_host ? 1 : 0;
    if (std::ranges::find(hosts, member->second.host) == hosts.end()) hosts.push_back(member->second.host);
  }
  const auto host = std::ranges::find(hosts, own_host) - hosts.begin();
  const int cross_rank = static_cast<int>(host);
  return {.size = members + 1,
          .local_rank = slot,
          .local_size = std::max(here, slot) + 1,
          .cross_rank = cross_rank,
          .cross_size = std::max(static_cast<int>(hosts.size()), cross_rank + 1)};
}

std::pair<std::string, std::string> Membership::hosts_apart() const {
  using Reports = std::map<std::string, std::pair<int, int>>;  // by host: reports in both directions, and all
  const auto add = [this](std::pair<int, int>& counts, const std::string& from, const std::string& to) {
    if (std::ranges::find(unreachable_, std::pair(to, from)) != unreachable_.end()) ++counts.first;
    ++counts.second;
  };
  const auto most = [this](const Reports& counts) {
    const auto weight = [this](const auto& entry) { return std::pair(entry.second, hosts_.at(entry.first).place); };
    return std::ranges::max_element(counts, {}, weight)->first;
  };
  Reports reports, in_common;
  for (const auto& [from, to] : unreachable_) add(reports[to], from, to);
  const std::string host = most(reports);
  for (const auto& [from, to] : unreachable_) {
    if (to == host) add(in_common[from], from, to);
    if (from == host) add(in_common[to], from, to);
  }
  return {host, most(in_common)};
}

bool Membership::can_begin_without(const std::string& host) const {
  const auto stays = [&](const Process& process) { return process.place == Place::waiting && process.host != host; };
  return count(stays) >= fewest() &&
         count([&](const Process& process) { return stays(process) && process.has_state; }) > 0;
}

int Membership::occupied_slots(const std::string& host) const {
  return count([&](const Process& process) { return process.host == host && process.place != Place::expelled; });
}

int Membership::free_slot(const std::string& host) const {
  for (int slot = 0;; ++slot) {
    if (count([&](const Process& process) { return process.host == host && process.slot == slot; }) == 0) return slot;
  }
}

bool Membership::may_start_on(const std::string& name, const Host& host) const {
  const int counted = count([](const Process& process) { return process.place != Place::expelled && !process.leaves; });
  return !finishing_ && !ends_early_ && !state_is_lost() && !host.preempted && occupied_slots(name) < host.slots &&
         counted < options_.max_np + options_.spares;
}

std::vector<int> Membership::candidates() const {
  std::vector<int> order;
  const auto add = [&](int number) {
    const auto found = processes_.find(number);
    if (found == processes_.end() || found->second.place != Place::waiting) return;
    if (std::find(order.begin(), order.end(), number) == order.end()) order.push_back(number);
  };
  for (const int number : members_) add(number);
  if (!finishing_ || is_first()) {
    for (const auto& [number, process] : processes_) add(number);
  }
  if (is_first()) {
    std::ranges::stable_sort(order, {}, [&](int number) { return hosts_.at(processes_.at(number).host).place; });
  }
  const auto others =
      std::stable_partition(order.begin(), order.end(), [&](int number) { return processes_.at(number).has_state; });
  const auto surplus = static_cast<std::ptrdiff_t>(order.size()) - options_.max_np;
  if (surplus <= 0) return order;
  if (state_is_leaving()) {  // one who leaves is enough to bring the state; the others make room for newcomers
    order.erase(std::max(order.begin() + 1, others - surplus), others);
  }
  order.resize(std::min(order.size(), static_cast<std::size_t>(options_.max_np)));
  return order;
}

bool Membership::all_have_failed() const {
  const auto is_first_try = [this](const auto& entry) {
    return entry.first < first_tries_ && entry.second.place != Place::expelled;
  };
  return is_first() && first_tries_ > 0 && !finishing_ && count_at(Place::waiting) == 0 &&
         std::ranges::none_of(processes_, is_first_try);
}

bool Membership::state_is_leaving() const {
  const auto has_state = [](const Process& process) { return process.has_state && process.place != Place::expelled; };
  return !is_first() && !finishing_ && !ends_early_ &&
         count([&](const Process& process) { return has_state(process) && !process.leaves; }) == 0 &&
         count([&](const Process& process) { return has_state(process) && process.leaves; }) > 0;
}

bool Membership::state_is_lost() const {
  return !is_first() &&
         count([](const Process& process) { return process.has_state && process.place != Place::expelled; }) == 0;
}

bool Membership::all_hosts_are_preempted() const {
  return std::ranges::all_of(hosts_,
                             [](const auto& entry) { return entry.second.preempted || entry.second.slots == 0; });
}

int Membership::starting_newcomers() const {
  return running() && !ends_early_ ? std::clamp(places_for_newcomers(), 0, starting()) : 0;
}

int Membership::staying() const {
  const bool some_go_on_leaving = state_is_leaving();
  return count([&](const Process& process) {
    return process.place == Place::member && (!process.leaves || some_go_on_leaving);
  });
}

int Membership::places_for_newcomers() const {
  const int stay = count([](const Process& process) { return process.place == Place::member && !process.leaves; });
  return options_.max_np - stay - (state_is_leaving() ? 1 : 0);
}

bool Membership::newcomers_wait() const {
  return running() && !announced_ && !finishing_ && !ends_early_ && places_for_newcomers() > 0 &&
         count([](const Process& process) { return process.place == Place::waiting && !process.leaves; }) > 0;
}

bool Membership::can_begin() const {
  const std::vector<int> order = candidates();
  if (static_cast<int>(order.size()) < fewest()) return false;
  return is_first() || processes_.at(order.front()).has_state;
}

}  // namespace hvd::launcher

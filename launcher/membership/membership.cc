#include "launcher/membership/membership.h"

#include <algorithm>
#include <cstddef>

namespace hvd::launcher {
namespace {

using ProcessState = ProcessTable::ProcessState;
using Process = ProcessTable::Process;

// Expels those who leave and wait, but not the last who have the job's state.
void dismiss_leaving(ElasticJob& job) {
  const bool keeps_state = job.state_is_leaving();
  const auto is_done = [keeps_state](const Process& process) {
    return process.is_leaving && process.state == ProcessState::waiting && !(keeps_state && process.has_state);
  };
  const auto has_saved = [&](const Process& process) { return is_done(process) && process.has_state; };
  job.has_left_early = job.has_left_early || (job.ends_early && job.processes.count(has_saved) > 0);
  for (const int process : job.processes.expel(is_done)) job.actions.emplace_back(DismissProcess{process});
}

void start_processes(ElasticJob& job, TimePoint now) {
  for (const auto& [name, host] : job.hosts.all()) {
    while (job.may_start_on(name, host) && now >= host.usable_from) {
      const auto& [number, process] = job.processes.start(name);
      job.actions.emplace_back(StartProcess{.process = number, .host = name, .slot = process.slot});
    }
  }
}

// Expels the processes that have not arrived within --elastic-timeout.
void give_up_waiting(ElasticJob& job, TimePoint now) {
  if (job.running() || now < job.gathering_since + job.options.elastic_timeout) return;
  const auto is_late = [&](const Process& process) {
    return process.state == ProcessState::member || (job.is_first() && process.state == ProcessState::starting);
  };
  for (const int process : job.processes.expel(is_late)) job.actions.emplace_back(ExpelProcess{process});
  if (job.can_begin()) return job.begin(now);
  const auto waited = static_cast<long>(seconds(job.options.elastic_timeout));
  job.end("only " + std::to_string(job.candidates().size()) + " of at least " + std::to_string(job.options.min_np) +
          " processes joined within " + std::to_string(waited) + " s (--elastic-timeout, --min-np)");
}

// Whether all processes that were started before the first failure have failed, and no later one waits.
bool all_have_failed(const ElasticJob& job) {
  const auto is_first_try = [&](const auto& entry) {
    return entry.first < job.first_tries && entry.second.state != ProcessState::expelled;
  };
  return job.is_first() && job.first_tries > 0 && !job.is_winding_down &&
         job.processes.count_in(ProcessState::waiting) == 0 && std::ranges::none_of(job.processes.all(), is_first_try);
}

void end_if_hopeless(ElasticJob& job) {
  const ProcessTable& processes = job.processes;
  if (job.ends_early && job.is_first()) return job.end({}, true);
  if (processes.count_in(ProcessState::failing) > 0) return;  // they are left to end by themselves, and to say why
  const int in_epoch = processes.count_in(ProcessState::member);
  const bool nobody_is_left =
      in_epoch + processes.count_in(ProcessState::waiting) + processes.count_in(ProcessState::starting) == 0;
  const int trained = in_epoch + processes.count([](const Process& process) {
    return process.state == ProcessState::waiting && process.has_state;
  });
  if (job.is_winding_down && (nobody_is_left || (!job.is_first() && trained == 0))) return job.end(job.epoch_failure);
  // A member that is not known to have the state may just not have said so before another one finished.
  if (job.state_is_lost() && !job.is_winding_down && !job.has_left_early) {
    return job.end("every process that had the job's state is gone");
  }
  if (job.state_is_lost() && job.has_left_early && processes.count_in(ProcessState::expelled) == 0)
    return job.end({}, true);
  if (all_have_failed(job)) return job.end("every process has failed before the job began");
  const bool some_may_arrive = in_epoch > 0 || (job.is_first() && processes.count_in(ProcessState::starting) > 0);
  if (job.is_winding_down && !job.running() && !some_may_arrive && !job.can_begin()) {
    job.end("too few processes are left, after others have finished");
  }
}

bool can_begin_without(const ElasticJob& job, const std::string& host) {
  const auto stays = [&](const Process& process) {
    return process.state == ProcessState::waiting && process.host != host;
  };
  const auto brings_state = [&](const Process& process) { return stays(process) && process.has_state; };
  return job.processes.count(stays) >= job.fewest() && job.processes.count(brings_state) > 0;
}

// The processes of the last epoch have arrived, as far as they are there. May end the job.
void leave_out_unreachable_host(ElasticJob& job, TimePoint now) {
  const auto waits = [&](int number) {
    const Process* const process = job.processes.find(number);
    return process != nullptr && process->state == ProcessState::waiting && !process->is_leaving;
  };
  if (!std::ranges::all_of(job.processes.members(), waits)) return job.partition.forget();
  if ((job.announced && !job.ends_early) || !job.partition.epoch_failed()) return;
  auto [host, other] = job.partition.hosts_apart(job.hosts);
  job.partition.forget();
  if (!can_begin_without(job, host)) std::swap(host, other);
  if (!can_begin_without(job, host)) {
    return job.end("hosts " + other + " and " + host + " cannot reach each other, and without one of them fewer than " +
                   std::to_string(job.fewest()) + " processes are left (--min-np)");
  }
  job.processes.mark_left_out(host);
  job.hosts.cool_down(host, now);
  job.actions.emplace_back(LeaveOutHost{.host = host, .other = other});
  dismiss_leaving(job);
}

void begin_if_complete(ElasticJob& job, TimePoint now) {
  const ProcessTable& processes = job.processes;
  if (job.running() || processes.count_in(ProcessState::member) > 0 || !job.can_begin()) return;
  const bool too_early =
      std::ssize(job.candidates()) < job.options.num_proc && job.first_tries == 0 && !job.is_winding_down;
  if (job.is_first() && (processes.count_in(ProcessState::starting) > 0 || too_early)) return;
  if (job.may_not_change() && processes.count_in(ProcessState::failing) > 0)
    return;  // the job ends, and they are to say why
  if (!job.is_first()) leave_out_unreachable_host(job, now);
  if (job.over()) return;
  job.begin(now);
}

void announce_if_needed(ElasticJob& job, TimePoint now) {
  if (!job.running() || job.announced || job.is_winding_down) return;
  if (job.ends_early) {
    job.announced = true;
    job.actions.emplace_back(AnnounceChange{.epoch = job.processes.epoch(), .ends = true});
    return;
  }
  const int staying = job.processes.count_staying_in(ProcessState::member);
  const bool removes = staying < job.processes.count_in(ProcessState::member) && !job.state_is_leaving();
  const bool adds = job.newcomers_wait() && (removes || job.processes.count_staying_in(ProcessState::starting) == 0 ||
                                             now >= job.newcomer_wait_until);
  if (!adds && !removes) return;
  job.announced = true;
  job.actions.emplace_back(AnnounceChange{.epoch = job.processes.epoch(), .adds = adds, .removes = removes});
}

// Everything that follows from the events so far.
void advance(ElasticJob& job, TimePoint now) {
  if (!job.over()) give_up_waiting(job, now);
  if (job.over()) return;
  if (!job.ends_early) {
    for (const auto& [name, host] : job.hosts.all()) job.processes.mark_surplus(name, host.slots);
  }
  dismiss_leaving(job);
  start_processes(job, now);
  end_if_hopeless(job);
  if (!job.over()) begin_if_complete(job, now);
  if (!job.over()) announce_if_needed(job, now);
}

}  // namespace

// ---- Events

void Membership::hosts_changed(const std::vector<HostCount>& hosts, TimePoint now) {
  const auto before = job_.hosts.all();
  job_.hosts.hosts_changed(hosts);
  // A script may leave hosts out for a moment. advance() marks anew those that are still too many.
  for (const auto& [name, host] : job_.hosts.all()) {
    const auto known = before.find(name);
    if (known != before.end() && host.slots > known->second.slots) job_.processes.keep_surplus(name);
  }
  advance(job_, now);
}

void Membership::process_arrived(int process, TimePoint now) {
  Process* const found = job_.processes.find(process);
  if (found == nullptr || over()) return;
  const bool nobody_waited = running() && !job_.newcomers_wait();
  const ProcessState before = std::exchange(found->state, ProcessState::waiting);
  if (nobody_waited) job_.newcomer_wait_until = now + kNewcomerWait;
  if (before == ProcessState::member && running()) {
    job_.gather("rank " + std::to_string(*job_.processes.rank_of(process)) + " has left the epoch", now);
  }
  advance(job_, now);
}

void Membership::process_synchronized(int process, TimePoint now) {
  Process* const found = job_.processes.find(process);
  if (found == nullptr || found->state != ProcessState::member) return;
  found->has_state = true;
  job_.hosts.process_succeeded(found->host);
  if (running()) job_.partition.forget();
  advance(job_, now);
}

void Membership::process_fails(int process, const std::string& cause, TimePoint now) {
  Process* const found = job_.processes.find(process);
  if (found == nullptr || over() || found->state == ProcessState::failing) return;
  const Process before = *found;
  found->state = ProcessState::failing;
  found->has_state = false;
  job_.note_failure(before, cause, now);
  advance(job_, now);
}

void Membership::process_ended(int process, ProcessEnd how, const std::string& cause, TimePoint now) {
  const Process* const found = job_.processes.find(process);
  if (found == nullptr) return;
  const Process ended = *found;
  const bool goes_on = !ended.is_leaving || job_.state_is_leaving();
  job_.processes.erase(process);
  if (how == ProcessEnd::failed || how == ProcessEnd::failed_for_good) {
    job_.last_failure = cause;
    if (how == ProcessEnd::failed_for_good && job_.is_first()) {
      return job_.end("a process exited with code 78 (EX_CONFIG), so it is not restarted");
    }
    if (ended.state != ProcessState::failing) job_.note_failure(ended, cause, now);
  } else if (goes_on &&
             (ended.state == ProcessState::member || (job_.is_first() && ended.state != ProcessState::failing))) {
    job_.is_winding_down = true;
  } else if (goes_on && (ended.state == ProcessState::starting || ended.state == ProcessState::waiting)) {
    job_.hosts.cool_down(ended.host, now);  // no failure, but the next one would end as soon
  }
  advance(job_, now);
}

void Membership::process_cannot_reach(int process, std::int64_t rank) {
  const Process* const found = job_.processes.find(process);
  const std::vector<int>& members = job_.processes.members();
  if (found == nullptr || found->state != ProcessState::member || rank < 0 || rank >= std::ssize(members)) return;
  const Process* const other = job_.processes.find(members[static_cast<std::size_t>(rank)]);
  if (other != nullptr && other->host != found->host) job_.partition.report(found->host, other->host);
}

void Membership::process_preempted(int process, TimePoint now) {
  Process* const found = job_.processes.find(process);
  if (found == nullptr) return;
  found->is_leaving = true;
  found->is_surplus = false;
  job_.hosts.cool_down(found->host, now);
  advance(job_, now);
}

void Membership::host_preempted(const std::string& host, TimePoint now) {
  job_.hosts.host_preempted(host);
  if (job_.options.fixed_hosts && job_.hosts.all_are_preempted()) return end_early(now);
  job_.processes.mark_leaving(host);
  advance(job_, now);
}

void Membership::end_early(TimePoint now) {
  if (over() || std::exchange(job_.ends_early, true)) return;
  job_.processes.keep_all();  // they leave only once they have saved the state
  advance(job_, now);
}

void Membership::host_lost(const std::string& host, const std::string& cause, TimePoint now) {
  const auto was_member = [&](const Process& each) { return each.host == host && each.state == ProcessState::member; };
  const bool had_member = job_.processes.count(was_member) > 0;
  const bool had_any = job_.processes.erase_host(host);
  job_.hosts.host_lost(host, now);
  job_.last_failure = cause;
  if (had_member) job_.epoch_failure = cause;
  if (had_any) job_.note_first_failure();
  if (had_member && running()) job_.gather(cause, now);
  advance(job_, now);
}

void Membership::time_passed(TimePoint now) { advance(job_, now); }

// ---- What is

std::optional<Deadline> Membership::next_deadline() const {
  std::optional<Deadline> next;
  if (over()) return next;
  if (!running()) next = job_.gathering_since + job_.options.elastic_timeout;
  if (job_.newcomers_wait()) next = job_.newcomer_wait_until;
  for (const auto& [name, host] : job_.hosts.all()) {
    if (job_.may_start_on(name, host)) next = earlier(next, host.usable_from);
  }
  return next;
}

int Membership::starting_newcomers() const {
  return running() && !ends_early()
             ? std::clamp(job_.places_for_newcomers(), 0, job_.processes.count_staying_in(ProcessState::starting))
             : 0;
}

std::vector<int> ElasticJob::candidates() const {
  const std::map<int, Process>& all = processes.all();
  std::vector<int> order;
  const auto add = [&](int number) {
    const auto found = all.find(number);
    if (found == all.end() || found->second.state != ProcessState::waiting) return;
    if (std::find(order.begin(), order.end(), number) == order.end()) order.push_back(number);
  };
  for (const int number : processes.members()) add(number);
  if (!is_winding_down || is_first()) {
    for (const auto& [number, process] : all) add(number);
  }
  if (is_first()) {
    std::ranges::stable_sort(order, {}, [&](int number) { return hosts.order_of(all.at(number).host); });
  }
  const auto others =
      std::stable_partition(order.begin(), order.end(), [&](int number) { return all.at(number).has_state; });
  const auto surplus = std::ssize(order) - options.max_np;
  if (surplus <= 0) return order;
  if (state_is_leaving()) {  // one who leaves is enough to bring the state; the others make room for newcomers
    order.erase(std::max(order.begin() + 1, others - surplus), others);
  }
  order.resize(std::min(order.size(), static_cast<std::size_t>(options.max_np)));
  return order;
}

bool ElasticJob::can_begin() const {
  const std::vector<int> order = candidates();
  if (std::ssize(order) < fewest()) return false;
  return is_first() || processes.all().at(order.front()).has_state;
}

bool ElasticJob::state_is_leaving() const {
  return !is_first() && !is_winding_down && !ends_early && !state_is_lost() &&
         processes.count([](const Process& process) { return process.has_state && !process.is_leaving; }) == 0;
}

bool ElasticJob::may_start_on(const std::string& name, const HostTable::Host& host) const {
  const int counted = processes.count(
      [](const Process& process) { return process.state != ProcessState::expelled && !process.is_leaving; });
  const int occupied =  // by processes that were not given up
      processes.count(
          [&](const Process& process) { return process.host == name && process.state != ProcessState::expelled; });
  return !is_winding_down && !ends_early && !state_is_lost() && !host.preempted && occupied < host.slots &&
         counted < options.max_np + options.spares;
}

int ElasticJob::places_for_newcomers() const {
  return options.max_np - processes.count_staying_in(ProcessState::member) - (state_is_leaving() ? 1 : 0);
}

bool ElasticJob::newcomers_wait() const {
  return running() && !announced && !is_winding_down && !ends_early && places_for_newcomers() > 0 &&
         processes.count_staying_in(ProcessState::waiting) > 0;
}

// ---- What changes

void ElasticJob::begin(TimePoint now) {
  if (may_not_change()) {
    return end("the job was reset " + std::to_string(*options.reset_limit) + " times (--reset-limit)");
  }
  phase = Phase::running;
  announced = false;
  epoch_failure.clear();
  first_tries = 0;
  partition.epoch_begins(now);
  processes.begin_epoch(candidates());
  actions.emplace_back(BeginEpoch{.epoch = processes.epoch(), .processes = processes.members()});
}

void ElasticJob::gather(const std::string& cause, TimePoint now) {
  phase = Phase::gathering;
  gathering_since = now;
  partition.epoch_ends(now);
  actions.emplace_back(BreakEpoch{.epoch = processes.epoch(), .cause = cause});
}

void ElasticJob::end(const std::string& failure, bool early) {
  phase = Phase::over;
  for (const auto& [number, process] : processes.all()) {
    if (process.state == ProcessState::waiting) actions.emplace_back(DismissProcess{number});
  }
  const bool names_another = !failure.empty() && !last_failure.empty() && failure != last_failure;
  actions.emplace_back(EndJob{failure + (names_another ? "; the last failure: " + last_failure : ""), early});
}

void ElasticJob::note_failure(const Process& process, const std::string& cause, TimePoint now) {
  last_failure = cause;
  note_first_failure();
  hosts.cool_down(process.host, now);
  if (process.state != ProcessState::member) return;
  epoch_failure = cause;
  if (running()) gather(cause, now);
}

}  // namespace hvd::launcher

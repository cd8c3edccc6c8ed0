#include "launcher/job/membership_runner.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <utility>

#include "launcher/plan/host_plan.h"

namespace hvd::launcher {
namespace {

constexpr Duration kTermNotice = 20s;  // from SIGTERM to the end; Slurm and Kubernetes kill after 30 s
constexpr Duration kSameNotice = 2s;

// A visitor with a function for each alternative.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

// "process 4", "processes 4, 7": those of `processes` that `others` does not have.
std::string list_processes_without(const std::vector<int>& processes, const std::vector<int>& others) {
  std::string list;
  int count = 0;
  for (const int process : processes) {
    if (std::ranges::find(others, process) != others.end()) continue;
    list += (count++ == 0 ? "" : ", ") + std::to_string(process);
  }
  return count == 0 ? "" : (count == 1 ? "process " : "processes ") + list;
}

ProcessEnd end_for_membership(const RankEnd& end) {
  if (end.status.ok() && !end.ended_without_shutdown()) return ProcessEnd::finished;
  return end.status == ExitStatus{.value = kFailedForGood} ? ProcessEnd::failed_for_good : ProcessEnd::failed;
}

}  // namespace

std::string EpochPause::length_text() const {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", since_ ? seconds(Clock::now() - *since_) : 0.0);
  return text;
}

std::string EpochPause::causes_text() const {
  std::string text;
  for (const std::string& cause : causes_) text += "; " + cause;
  return text;
}

MembershipRunner::MembershipRunner(const MembershipOptions& options, ElasticStore& store, const JobParts& job)
    : store_(store), job_(job), membership_(options, Clock::now()) {
  store_.listen({.stands_by = [this](int process) { stands_by(process); },
                 .arrived = [this](int process, std::int64_t arrival) { arrived(process, arrival); },
                 .synchronized =
                     [this](int process) {
                       membership_.process_synchronized(process, Clock::now());
                       perform();
                     },
                 .preempted = [this](int process) { preempted(process); },
                 .unreachable =
                     [this](int process, std::int64_t rank) {
                       if (!over()) membership_.process_cannot_reach(process, rank);
                     },
                 .failing = [this](int process, const std::string& cause) { failing(process, cause); }});
}

void MembershipRunner::set_hosts(const std::vector<HostCount>& hosts) {
  membership_.hosts_changed(hosts, Clock::now());
  perform();
}

std::optional<EpochRank> MembershipRunner::epoch_rank_of(int process) const {
  const std::optional<int> rank = membership_.processes().rank_of(process);
  return rank ? std::optional(EpochRank{.epoch = membership_.processes().epoch(), .rank = *rank}) : std::nullopt;
}

void MembershipRunner::stands_by(int process) {
  store_.put(expected_rank_key(process),
             encode_expected_rank(over() ? ExpectedRank{} : membership_.processes().expected_rank_of(process)));
}

void MembershipRunner::arrived(int process, std::int64_t arrival) {
  arrivals_[process] = arrival;
  if (over()) return answer(process, {});
  const bool was_running = membership_.running();
  membership_.process_arrived(process, Clock::now());
  if (was_running && !membership_.running()) pause_.begin();
  perform();
}

void MembershipRunner::process_ended(int process, const RankEnd& end) {
  if (over()) return;
  const std::string cause = failure_of(name_of(process), end);
  if (end_for_membership(end) != ProcessEnd::finished) {
    last_failed_ = process;
    if (!membership_.processes().fails(process)) pause_.begin(cause);
  }
  membership_.process_ended(process, end_for_membership(end), cause, Clock::now());
  perform();
}

void MembershipRunner::process_not_started(int process, const std::string& cause) {
  if (over()) return;
  membership_.process_ended(process, ProcessEnd::failed, cause, Clock::now());
  perform();
}

void MembershipRunner::host_lost(const std::string& host, const std::string& cause, bool had_ranks) {
  if (over()) return;
  if (had_ranks) {
    last_failed_.reset();
    pause_.begin(cause);
  }
  membership_.host_lost(host, cause, Clock::now());
  perform();
}

void MembershipRunner::preempted(int process) {
  if (over()) return;
  pause_.add_cause("process " + std::to_string(process) + " is preempted");
  membership_.process_preempted(process, Clock::now());
  perform();
}

void MembershipRunner::failing(int process, const std::string& said) {
  if (over() || !membership_.processes().alive(process) || membership_.processes().fails(process)) return;
  const std::string cause = name_of(process) + " " + said;
  pause_.begin(cause);
  membership_.process_fails(process, cause, Clock::now());
  perform();
}

void MembershipRunner::host_preempted(const std::string& host) {
  if (over()) return;
  pause_.add_cause("host " + host + " is preempted");
  membership_.host_preempted(host, Clock::now());
  perform();
}

void MembershipRunner::end_early() {
  if (over()) return;
  membership_.end_early(Clock::now());
  perform();
}

std::string MembershipRunner::name_of(int process) const {
  const auto rank = membership_.processes().rank_of(process);
  const std::string& host = job_.processes.at(process).host_name;
  return (rank ? "rank " + std::to_string(*rank) : "process " + std::to_string(process)) +
         (host.empty() ? "" : " on " + host);
}

// Actions may cause events, whose actions follow.
void MembershipRunner::perform() {
  if (std::exchange(is_performing_, true)) return;
  for (auto actions = membership_.take_actions(); !actions.empty(); actions = membership_.take_actions()) {
    for (const MembershipAction& action : actions) {
      if (!is_stopped_) perform(action);
    }
  }
  report_starting();
  is_performing_ = false;
}

void MembershipRunner::perform(const MembershipAction& action) {
  const Overloaded visitor{
      [&](const StartProcess& start) {
        const int host = job_.processes.host_named(start.host);
        const std::vector<RankPlan>& slots = job_.processes.slots_of(host);
        RankPlan plan = slots[static_cast<std::size_t>(start.slot) % slots.size()];
        plan.numbers.rank = start.process;
        job_.end.process_started();
        job_.processes.start(host, plan);
      },
      [&](const BeginEpoch& begin) { begin_epoch(begin); },
      [&](const AnnounceChange& change) { announce(change); },
      [&](const BreakEpoch& broken) { store_.put(broken_key(broken.epoch), broken.cause); },
      [&](const ExpelProcess& expelled) {
        job_.output.say("process " + std::to_string(expelled.process) +
                        " has not come back in time; the job goes on without it");
      },
      [&](const LeaveOutHost& left_out) {
        pause_.add_cause("host " + left_out.host + " is left out: it and host " + left_out.other +
                         " cannot reach each other");
      },
      [&](const DismissProcess& dismissed) { answer(dismissed.process, {}); },
      [&](const EndJob& end) {
        if (end.early) return job_.end.ended_early(Clock::now());
        if (!end.failure.empty()) job_.output.say("the job has failed: " + end.failure);
        job_.end.elastic_over(!end.failure.empty(), last_failed_, Clock::now());
      },
  };
  std::visit(visitor, action);
}

void MembershipRunner::report_starting() {
  if (is_stopped_) return;
  const int starting = membership_.starting_newcomers();
  const int change = starting - std::exchange(reported_starting_, starting);
  if (change != 0) store_.add(change_key(membership_.processes().epoch()), change * kOneStarting);
}

void MembershipRunner::begin_epoch(const BeginEpoch& begin) {
  const std::string joined = list_processes_without(begin.processes, members_);
  EpochPlace place{.epoch = begin.epoch,
                   .size = static_cast<int>(begin.processes.size()),
                   .has_newcomers = begin.epoch > 1 && !joined.empty()};
  store_.erase_epoch(begin.epoch - 1);
  reported_starting_ = 0;
  last_failed_.reset();
  for (const int process : begin.processes) {
    answer(process, place);
    ++place.rank;
  }
  if (begin.epoch > 1) job_.output.say(line_of(begin, joined));
  members_ = begin.processes;
  pause_.end();
}

void MembershipRunner::announce(const AnnounceChange& change) {
  const auto flags = (change.removes ? static_cast<int>(MembershipChange::removes) : 0) |
                     (change.adds ? static_cast<int>(MembershipChange::adds) : 0) |
                     (change.ends ? static_cast<int>(MembershipChange::ends) : 0);
  store_.add(change_key(change.epoch), flags);
}

void MembershipRunner::answer(int process, const EpochPlace& place) {
  store_.put(place_key(process, arrivals_[process]), encode_place(place));
}

std::string MembershipRunner::line_of(const BeginEpoch& begin, const std::string& joined) const {
  const std::string left = list_processes_without(members_, begin.processes);
  return "epoch " + std::to_string(begin.epoch) + " with " + std::to_string(begin.processes.size()) +
         (begin.processes.size() == 1 ? " rank" : " ranks") + ", after a pause of " + pause_.length_text() + " s" +
         (joined.empty() ? "" : "; joined: " + joined) + (left.empty() ? "" : "; left: " + left) + pause_.causes_text();
}

EarlyEnd::EarlyEnd(Options options, MembershipRunner& runner, EventLoop& loop, const SignalSource& signals,
                   const JobParts& job)
    : options_(options), runner_(runner), job_(job) {
  if (options_.margin > Duration::zero()) watch_allocation(loop, signals);
}

void EarlyEnd::watch_allocation(EventLoop& loop, const SignalSource& signals) {
  const Environment environment = parse_environment(environ);
  if (!environment.contains("SLURM_JOB_ID")) return;
  allocation_ = std::make_unique<AllocationEnd>(
      loop, signals, environment, options_.margin, kAllocationInterval,
      AllocationEnd::Callbacks{
          .known = [this](std::optional<TimePoint> limit, bool has_changed) { set_time_limit(limit, has_changed); },
          .warning = [this](const std::string& line) { job_.output.say(line); }});
}

void EarlyEnd::set_time_limit(std::optional<TimePoint> limit, bool has_changed) {
  if (commit_limit_ || runner_.over()) return;
  time_limit_ = limit;
  if (!has_changed && !options_.verbose) return;
  if (!limit) return job_.output.say("the allocation's end was changed: it has none any more");
  const auto left = std::to_string(std::lround(seconds(*limit - Clock::now())));
  job_.output.say((has_changed ? "the allocation's end was changed: the job ends in "
                               : "the allocation's time limit ends the job in ") +
                  left + " s, if it is not finished");
}

// Schedulers send SIGUSR1 some time before they end a job, if they are told to, and SIGTERM when they do. A second
// SIGTERM is an order, unless it is the same one: Slurm may send it to hvdrun and to the script that passes it on.
bool EarlyEnd::take_notice(int signal) {
  if (runner_.over() || (signal != SIGTERM && signal != SIGUSR1)) return false;
  const TimePoint now = Clock::now();
  if (signal == SIGTERM) {
    if (!first_sigterm_) first_sigterm_ = now;
    if (now >= *first_sigterm_ + kSameNotice) return false;
  }
  begin("received " + signal_name(signal), signal == SIGTERM ? kTermNotice : options_.limit);
  return true;
}

void EarlyEnd::begin(const std::string& cause, Duration limit) {
  if (!commit_limit_) job_.output.say(cause + ": the job ends at its next commit");
  commit_limit_ = earlier(commit_limit_, Clock::now() + limit);
  runner_.end_early();
}

void EarlyEnd::check_time(TimePoint now) {
  if (time_limit_ && now >= *time_limit_) {
    time_limit_.reset();
    if (!runner_.over()) begin("the time of the allocation is almost up");
  }
  if (!commit_limit_ || now < *commit_limit_) return;
  commit_limit_.reset();
  if (runner_.over()) return;
  job_.output.say("the ranks have not come to a commit in time, and are ended");
  runner_.stop();
  job_.end.interrupted(SIGTERM, Clock::now());
}

void ElasticRun::use_hosts(const std::vector<HostCount>& hosts) {
  job_.servers.hosts_changed(hosts);
  job_.servers.start_due();
  runner_.set_hosts(hosts);
}

void ElasticRun::use_all_hosts() {
  std::vector<HostCount> hosts;
  for (int host = 0; host < std::ssize(job_.processes.plans()); ++host) {
    hosts.emplace_back(job_.processes.plan_of(host).name, static_cast<int>(job_.processes.slots_of(host).size()));
  }
  use_hosts(hosts);
}

void ElasticRun::process_ended(int process, ExitStatus status, const JobEnding& said) {
  RankEnd end{.status = status, .said = said};
  // It named a rank of its epoch, whose process has another number.
  if (end.said.kind == JobEnding::Kind::consequence) end.said = {.in_job = true};
  job_.processes.remove(process);
  job_.end.process_ended(process, end);
  runner_.process_ended(process, end);
  job_.servers.process_failed();
  job_.servers.start_due();
  job_.servers.evacuate(job_.processes.at(process).host);
}

void ElasticRun::process_not_started(int process, const std::string& cause, int exit_code) {
  job_.processes.remove(process);
  job_.end.process_ended(process, {.status = {.value = exit_code}});
  runner_.process_not_started(process, cause);
}

void ElasticRun::host_lost(int host, const LostHost& lost) {
  bool had_ranks = false;
  for (const int rank : lost.ranks) {
    if (job_.end.ends()[static_cast<std::size_t>(rank)]) continue;
    job_.end.process_ended(rank, {.status = {}, .lost = true});
    had_ranks = true;
  }
  job_.processes.remove_all(host);
  job_.processes.nothing_left(host);
  if (!had_ranks) job_.output.say("host " + lost.name + " is lost, and had no ranks: " + lost.cause);
  for (const int server : lost.servers) {
    job_.output.say("server " + std::to_string(server) + " is lost with host " + lost.name + ": " + lost.cause);
  }
  job_.servers.host_lost(lost.name, Clock::now());
  runner_.host_lost(lost.name, "host " + lost.name + " is lost: " + lost.cause, had_ranks);
  job_.servers.start_due();
}

void ElasticRun::host_preempted(int host) {
  const std::string& name = job_.processes.plan_of(host).name;
  job_.servers.host_preempted(name);
  runner_.host_preempted(name);
  if (runner_.ends_early()) early_end_.begin("all hosts are preempted");
  job_.servers.evacuate(host);
}

}  // namespace hvd::launcher

#include "launcher/job/epochs.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace hvd::launcher {
namespace {

// A visitor with a function for each alternative.
template <typename... Functions>
struct Each : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Each(Functions...) -> Each<Functions...>;

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

Epochs::Epochs(const MembershipOptions& options, ElasticStore& store, Callbacks callbacks)
    : store_(store), callbacks_(std::move(callbacks)), membership_(options, Clock::now()) {
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

void Epochs::set_hosts(const std::vector<HostCount>& hosts) {
  membership_.hosts_changed(hosts, Clock::now());
  perform();
}

std::optional<EpochRank> Epochs::place_of(int process) const {
  const std::optional<int> rank = membership_.roster().rank_of(process);
  return rank ? std::optional(EpochRank{.epoch = membership_.epoch(), .rank = *rank}) : std::nullopt;
}

void Epochs::stands_by(int process) {
  store_.put(prospect_key(process), encode_prospect(over() ? Prospect{} : membership_.roster().prospect_of(process)));
}

void Epochs::arrived(int process, std::int64_t arrival) {
  arrivals_[process] = arrival;
  if (over()) return answer(process, {});
  const bool was_running = membership_.running();
  membership_.process_arrived(process, Clock::now());
  if (was_running && !membership_.running()) pause_.begin();
  perform();
}

void Epochs::process_ended(int process, const RankEnd& end) {
  if (over()) return;
  const std::string cause = failure_of(name_of(process), end);
  if (end_for_membership(end) != ProcessEnd::finished) {
    last_failed_ = process;
    if (!membership_.roster().fails(process)) pause_.begin(cause);
  }
  membership_.process_ended(process, end_for_membership(end), cause, Clock::now());
  perform();
}

void Epochs::process_not_started(int process, const std::string& cause) {
  if (over()) return;
  membership_.process_ended(process, ProcessEnd::failed, cause, Clock::now());
  perform();
}

void Epochs::host_lost(const std::string& host, const std::string& cause, bool had_ranks) {
  if (over()) return;
  if (had_ranks) pause_.begin(cause);
  membership_.host_lost(host, cause, Clock::now());
  perform();
}

void Epochs::preempted(int process) {
  if (over()) return;
  pause_.add_cause("process " + std::to_string(process) + " is preempted");
  membership_.process_preempted(process, Clock::now());
  perform();
}

void Epochs::failing(int process, const std::string& said) {
  if (over() || !membership_.roster().alive(process) || membership_.roster().fails(process)) return;
  const std::string cause = name_of(process) + " " + said;
  pause_.begin(cause);
  membership_.process_fails(process, cause, Clock::now());
  perform();
}

void Epochs::host_preempted(const std::string& host) {
  if (over()) return;
  pause_.add_cause("host " + host + " is preempted");
  membership_.host_preempted(host, Clock::now());
  perform();
}

void Epochs::end_early() {
  if (over()) return;
  membership_.end_early(Clock::now());
  perform();
}

std::string Epochs::name_of(int process) const {
  const auto rank = membership_.roster().rank_of(process);
  const std::string host = callbacks_.host_of(process);
  return (rank ? "rank " + std::to_string(*rank) : "process " + std::to_string(process)) +
         (host.empty() ? "" : " on " + host);
}

// Actions may cause events, whose actions follow.
void Epochs::perform() {
  if (std::exchange(is_performing_, true)) return;
  for (auto actions = membership_.take_actions(); !actions.empty(); actions = membership_.take_actions()) {
    for (const MembershipAction& action : actions) {
      if (!is_stopped_) perform(action);
    }
  }
  tell_starting();
  is_performing_ = false;
}

void Epochs::perform(const MembershipAction& action) {
  const Each each{
      [&](const StartProcess& start) { callbacks_.start(start.process, start.host, start.slot); },
      [&](const BeginEpoch& begin) { begin_epoch(begin); },
      [&](const AnnounceChange& change) { announce(change); },
      [&](const BreakEpoch& broken) { store_.put(broken_key(broken.epoch), broken.cause); },
      [&](const ExpelProcess& expelled) {
        callbacks_.say("process " + std::to_string(expelled.process) +
                       " has not come back in time; the job goes on without it");
      },
      [&](const LeaveOutHost& left_out) {
        pause_.add_cause("host " + left_out.host + " is left out: it and host " + left_out.other +
                         " cannot reach each other");
      },
      [&](const DismissProcess& dismissed) { answer(dismissed.process, {}); },
      [&](const EndJob& end) { callbacks_.over(end, last_failed_); },
  };
  std::visit(each, action);
}

void Epochs::tell_starting() {
  if (is_stopped_) return;
  const int starting = membership_.starting_newcomers();
  const int change = starting - std::exchange(told_starting_, starting);
  if (change != 0) store_.add(change_key(membership_.epoch()), change * kOneStarting);
}

void Epochs::begin_epoch(const BeginEpoch& begin) {
  const std::string joined = list_processes_without(begin.processes, members_);
  EpochPlace place{.epoch = begin.epoch,
                   .size = static_cast<int>(begin.processes.size()),
                   .has_newcomers = begin.epoch > 1 && !joined.empty()};
  store_.erase_epoch(begin.epoch - 1);
  told_starting_ = 0;
  for (const int process : begin.processes) {
    answer(process, place);
    ++place.rank;
  }
  if (begin.epoch > 1) callbacks_.say(line_of(begin, joined));
  members_ = begin.processes;
  pause_.end();
}

void Epochs::announce(const AnnounceChange& change) {
  const auto flags = (change.removes ? static_cast<int>(MembershipChange::removes) : 0) |
                     (change.adds ? static_cast<int>(MembershipChange::adds) : 0) |
                     (change.ends ? static_cast<int>(MembershipChange::ends) : 0);
  store_.add(change_key(change.epoch), flags);
}

void Epochs::answer(int process, const EpochPlace& place) {
  store_.put(place_key(process, arrivals_[process]), encode_place(place));
}

std::string Epochs::line_of(const BeginEpoch& begin, const std::string& joined) const {
  const std::string left = list_processes_without(members_, begin.processes);
  return "epoch " + std::to_string(begin.epoch) + " with " + std::to_string(begin.processes.size()) +
         (begin.processes.size() == 1 ? " rank" : " ranks") + ", after a pause of " + pause_.length_text() + " s" +
         (joined.empty() ? "" : "; joined: " + joined) + (left.empty() ? "" : "; left: " + left) + pause_.causes_text();
}

}  // namespace hvd::launcher

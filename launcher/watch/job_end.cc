#include "launcher/watch/job_end.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "core/base/text.h"

namespace hvd::launcher {
namespace {

// Whether a rank that others name has left them. A rank that exits with code 0 after hvdrun's signal has not.
bool left_others(const RankEnd& end) { return end.ended_without_shutdown() && end.signal_sent == 0; }

std::string how_it_ended(const RankEnd& end) {
  const ExitStatus& status = end.status;
  if (end.ended_without_shutdown()) return "ended without shutdown (exit code 0)";
  if (!status.by_signal) return "exit code " + std::to_string(status.value);
  std::string text = "killed by " + signal_name(status.value);
  if (status.core_dumped) text += " (core dumped)";
  if (status.value == SIGKILL) text += " (by another process, or by the kernel's out-of-memory killer)";
  if (status.value == SIGXFSZ) text += " (a file has grown to the limit of ulimit -f)";
  return text;
}

std::string what_became_of(const std::optional<RankEnd>& end) {
  if (!end) return "could not be killed";
  if (end->lost) return "unreachable";
  const ExitStatus& status = end->status;
  if (status.ok()) return end->ended_without_shutdown() ? "ended without shutdown" : "exited normally";
  if (!status.by_signal) return "exited with code " + std::to_string(status.value);
  const std::string name = signal_name(status.value);
  return status.value == end->signal_sent ? "terminated by hvdrun (" + name + ")" : "killed by " + name;
}

// One clause for each way in which ranks ended, in the order of its lowest rank.
std::string fates(const std::vector<std::optional<RankEnd>>& ends, const std::vector<int>& except,
                  bool are_processes = false) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (int rank = 0; rank < static_cast<int>(ends.size()); ++rank) {
    if (std::find(except.begin(), except.end(), rank) != except.end()) continue;
    const std::string fate = what_became_of(ends[static_cast<std::size_t>(rank)]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& entry) { return entry.first == fate; });
    if (group == groups.end()) group = groups.insert(groups.end(), {fate, {}});
    group->second.push_back(rank);
  }
  std::string text;
  for (const auto& [fate, ranks] : groups)
    text += (text.empty() ? "" : "; ") + list_ranks(ranks, are_processes) + " " + fate;
  return text;
}

// "hvdrun: ended by SIGINT; ranks 0-3 exited with code 1"
std::string with_fates(const std::string& event, const std::vector<std::optional<RankEnd>>& ends, bool are_processes) {
  const std::string all = fates(ends, {}, are_processes);
  return "hvdrun: " + event + (all.empty() ? "" : "; " + all) + "\n";
}

bool ended_by_hvdrun(const RankEnd& end) { return end.status.by_signal && end.status.value == end.signal_sent; }

// A rank that hvdrun's signal has ended has not failed, unless it had reported a failure before.
bool has_failed(const RankEnd& end) {
  if (end.lost || end.said.kind == JobEnding::Kind::local_failure || left_others(end)) return true;
  return !end.status.ok() && !ended_by_hvdrun(end);
}

// A rank that had failed, but was ended by hvdrun, has no exit code of its own.
int exit_code_of_failed(const RankEnd& end) {
  return ended_by_hvdrun(end) || end.status.ok() ? 1 : end.status.exit_code();
}

}  // namespace

bool RankEnd::ended_without_shutdown() const { return !lost && status.ok() && said.in_job; }

RankEnds::RankEnds(int size) : ends_(static_cast<std::size_t>(size)), remaining_(size) {}

void RankEnds::add() {
  ends_.emplace_back();
  ++remaining_;
}

void RankEnds::set(int rank, RankEnd end) {
  ends_[static_cast<std::size_t>(rank)] = std::move(end);
  --remaining_;
}

const std::vector<std::optional<RankEnd>>& RankEnds::all() const { return ends_; }

const RankEnd& RankEnds::of(int rank) const { return *ends_[static_cast<std::size_t>(rank)]; }

bool RankEnds::has_ended(int rank) const { return ends_[static_cast<std::size_t>(rank)].has_value(); }

bool RankEnds::all_have_ended() const { return remaining_ == 0; }

bool RankEnds::all_are_ok() const {
  return !ends_.empty() &&
         std::ranges::all_of(ends_, [](const auto& end) { return end && !end->lost && end->status.ok(); });
}

void RankEnds::blame(int rank, bool by_somebody) {
  failures_.push_back(rank);
  const int signal = of(rank).status.value;
  const bool is_often_a_consequence = signal == SIGABRT || signal == SIGPIPE;
  if (by_somebody && !is_often_a_consequence && !killed_in_grace_) killed_in_grace_ = rank;
}

bool RankEnds::blameless() const { return failures_.empty(); }

int RankEnds::cause() const {
  std::optional<int> found;
  for (auto rank = failures_.begin(); rank != failures_.end() && !found; ++rank) found = cause_seen_by(*rank);
  const int first = found.value_or(failures_.front());
  const RankEnd& end = of(first);
  const bool said_nothing = end.said.kind == JobEnding::Kind::untold && !end.status.by_signal && !end.status.ok();
  return said_nothing ? killed_in_grace_.value_or(first) : first;
}

std::optional<int> RankEnds::cause_seen_by(int rank) const {
  if (is_cause(rank)) return rank;
  const auto named = named_by(rank);
  return named && has_ended(*named) && left_others(of(*named)) ? named : std::nullopt;
}

std::optional<int> RankEnds::named_by(int rank) const {
  const JobEnding& said = of(rank).said;
  const bool known = said.kind == JobEnding::Kind::consequence && said.culprit >= 0 && said.culprit != rank &&
                     said.culprit < static_cast<int>(ends_.size());
  return known ? std::optional(said.culprit) : std::nullopt;
}

// A rank that is named but ended without failure is not the cause; the rank that could not continue without it is.
bool RankEnds::is_cause(int rank) const {
  const RankEnd& end = of(rank);
  if (!has_failed(end)) return false;
  if (end.said.kind != JobEnding::Kind::consequence) return true;
  const auto named = named_by(rank);
  return named && has_ended(*named) && !has_failed(of(*named));
}

bool RankEnds::awaits_culprit() const {
  return std::ranges::any_of(failures_, [this](int rank) {
    const auto named = named_by(rank);
    return named && !has_ended(*named);
  });
}

JobEnd::JobEnd(int size, Duration grace) : grace_(grace), ends_(size) {}

void JobEnd::rank_ended(int rank, ExitStatus status, const JobEnding& said, TimePoint now) {
  ends_.set(rank, {.status = status, .said = said, .signal_sent = signal_sent_});
  if (!status.ok()) begin(Stage::grace, Reason::rank_failed, now + grace_);
  if (reason_ == Reason::rank_failed) {
    if (ends_.blameless()) failed_at_ = now;
    if (!status.ok()) {
      ends_.blame(rank, stage_ == Stage::grace && status.by_signal && status.value != last_forwarded_);
    }
    first_failed_ = ends_.cause();
  }
  if (all_ranks_ended()) begin(Stage::grace, Reason::none, now + grace_);
}

void JobEnd::process_started() { ends_.add(); }

void JobEnd::process_ended(int process, RankEnd end) { ends_.set(process, std::move(end)); }

void JobEnd::elastic_over(bool has_failed, std::optional<int> culprit, TimePoint now) {
  if (has_failed && culprit) {
    begin(Stage::grace, Reason::rank_failed, now + grace_);
    if (reason_ != Reason::rank_failed) return;
    ends_.blame(*culprit, false);
    first_failed_ = culprit;
  } else {
    begin(Stage::grace, has_failed ? Reason::too_few : Reason::finished, now + grace_);
  }
}

void JobEnd::ended_early(TimePoint now) { begin(Stage::grace, Reason::ended_early, now + grace_); }

// A culprit may take longer to end than the ranks that name it, and should end with its own exit code.
Deadline JobEnd::stage_end() const {
  const bool waits = stage_ == Stage::grace && reason_ == Reason::rank_failed && !hurried_ && ends_.awaits_culprit();
  return waits ? std::max(stage_deadline_, failed_at_ + kCulpritTime) : stage_deadline_;
}

bool JobEnd::interrupted(int signal, TimePoint now) {
  if (signal == last_forwarded_ && now < forwarded_at_ + kOneSignal) return false;
  last_forwarded_ = signal;
  forwarded_at_ = now;
  begin(Stage::grace, Reason::interrupted, now + grace_);
  if (reason_ == Reason::interrupted && interrupting_signal_ == 0) interrupting_signal_ = signal;
  if (signal == SIGINT && ++keyboard_interrupts_ == 2) begin(Stage::terminating, reason_, now);
  return true;
}

void JobEnd::output_closed(TimePoint now) {
  if (stage_ == Stage::running) begin(Stage::grace, Reason::output_closed, now);
}

void JobEnd::timed_out(TimePoint now) {
  hurried_ = true;
  if (stage_ <= Stage::grace) begin(Stage::grace, Reason::timed_out, now);
}

void JobEnd::start_failed(int exit_code, TimePoint now) {
  if (reason_ == Reason::none) other_exit_code_ = exit_code;
  begin(Stage::terminating, Reason::start_failed, now);
}

void JobEnd::server_failed(ExitStatus status, TimePoint now) {
  if (reason_ == Reason::none) other_exit_code_ = status.exit_code();
  begin(Stage::grace, Reason::server_failed, now + grace_);
}

bool JobEnd::host_lost(const LostHost& host, TimePoint now) {
  bool had_ended = host.servers.empty();
  for (const int rank : host.ranks) {
    if (ends_.has_ended(rank)) continue;
    had_ended = false;
    ends_.set(rank, {.status = {}, .lost = true});
  }
  if (had_ended) return false;
  lost_hosts_.push_back(host);
  begin(Stage::grace, Reason::host_lost, now + grace_);
  if (reason_ != Reason::rank_failed || stage_ != Stage::grace) return true;
  const RankEnd& first = ends_.of(*first_failed_);
  if (first.status.by_signal || first.status.ok() || first.said.kind == JobEnding::Kind::local_failure) return true;
  reason_ = Reason::host_lost;
  first_failed_.reset();
  return true;
}

// Stages only advance. The current stage may get an earlier deadline.
void JobEnd::begin(Stage stage, Reason reason, Deadline deadline) {
  if (reason_ == Reason::none) reason_ = reason;
  if (stage > stage_) {
    stage_ = stage;
    stage_deadline_ = deadline;
  } else if (stage == stage_) {
    stage_deadline_ = std::min(stage_deadline_, deadline);
  }
}

std::optional<int> JobEnd::signal_due(TimePoint now) {
  if (stage_ == Stage::running || now < stage_end()) return std::nullopt;
  if (stage_ == Stage::killing) {
    gave_up_ = true;
    return std::nullopt;
  }
  const bool term = stage_ == Stage::grace;
  begin(term ? Stage::terminating : Stage::killing, reason_, now + (term ? kTerminationTime : kKillTime));
  signal_sent_ = term ? SIGTERM : SIGKILL;
  return signal_sent_;
}

std::optional<Deadline> JobEnd::next_deadline() const {
  if (stage_ == Stage::running || gave_up_) return std::nullopt;
  return stage_end();
}

bool JobEnd::is_running() const { return stage_ == Stage::running; }

JobEnd::Reason JobEnd::reason() const { return reason_; }

bool JobEnd::all_ranks_ended() const { return ends_.all_have_ended(); }

bool JobEnd::gave_up() const { return gave_up_; }

std::optional<int> JobEnd::first_failed() const { return first_failed_; }

const std::vector<LostHost>& JobEnd::lost_hosts() const { return lost_hosts_; }

int JobEnd::interrupting_signal() const { return interrupting_signal_; }

const std::vector<std::optional<RankEnd>>& JobEnd::ends() const { return ends_.all(); }

int JobEnd::exit_code() const {
  switch (reason_) {
    case Reason::none: return 0;
    case Reason::rank_failed: return exit_code_of_failed(ends_.of(*first_failed_));
    // Programs that handle the signal and exit with code 0 have done what was requested.
    case Reason::interrupted: return ends_.all_are_ok() ? 0 : 128 + interrupting_signal_;
    case Reason::output_closed: return 128 + SIGPIPE;
    case Reason::timed_out: return kTimedOutCode;
    case Reason::start_failed:
    case Reason::server_failed: return other_exit_code_;
    case Reason::host_lost: return 1;
    case Reason::finished: return 0;
    case Reason::ended_early: return kEndedEarlyCode;
    case Reason::too_few: return 1;
  }
  return 1;
}

std::string list_ranks(const std::vector<int>& ranks, bool are_processes) {
  std::string text = are_processes ? "process" : "rank";
  if (ranks.size() > 1) text += are_processes ? "es" : "s";
  return text + " " + ranges_text(ranks, ranks.size());
}

std::string rank_failure(int rank, const std::string& host, const RankEnd& end) {
  return failure_of("rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host), end);
}

std::string failure_of(const std::string& name, const RankEnd& end) {
  return end.said.cause.empty() ? name + " has failed: " + how_it_ended(end) : name + " " + end.said.cause;
}

std::string host_loss(const LostHost& host) {
  std::string processes = host.ranks.empty() ? "" : list_ranks(host.ranks);
  for (const int server : host.servers) {
    processes += std::string(processes.empty() ? "" : ", ") + "server " + std::to_string(server);
  }
  return "host " + host.name + " (" + processes + ") is lost: " + host.cause;
}

std::string failure_report(const Failure& failure, const std::vector<std::optional<RankEnd>>& ends) {
  char age[32];
  std::snprintf(age, sizeof age, "%.1f", seconds(failure.age));
  const bool is_server = failure.server_end.has_value();
  const RankEnd& end = is_server ? *failure.server_end : *ends[static_cast<std::size_t>(failure.rank)];
  const bool has_others = ends.size() > 1 || is_server;
  const bool is_first = has_others && !failure.is_process;
  const char* const kind = is_server ? "server " : failure.is_process ? "process " : "rank ";
  std::string text = std::string("hvdrun: ") + kind + std::to_string(failure.rank) +
                     (failure.host.empty() ? "" : " on " + failure.host) + " failed" + (is_first ? " first: " : ": ") +
                     how_it_ended(end) + " (pid " + std::to_string(failure.pid) + ", after " + age + " s)\n";
  if (!end.said.cause.empty()) text += "hvdrun: it " + end.said.cause + "\n";
  if (failure.last_lines.empty()) {
    text += "hvdrun: it wrote nothing to its " + failure.stream + "\n";
  } else {
    text += "hvdrun: the last lines of its " + failure.stream + ":\n";
    for (const std::string& line : failure.last_lines) text += "    " + line + "\n";
  }
  const std::vector<int> named = is_server ? std::vector<int>() : std::vector<int>{failure.rank};
  if (has_others) text += "hvdrun: the others: " + fates(ends, named, failure.is_process) + "\n";
  return text;
}

std::string lost_host_report(const std::vector<LostHost>& lost, const std::vector<std::optional<RankEnd>>& ends) {
  std::string text;
  std::vector<int> named;
  for (const LostHost& host : lost) {
    text += "hvdrun: " + host_loss(host) + "\n";
    named.insert(named.end(), host.ranks.begin(), host.ranks.end());
  }
  const std::string others = fates(ends, named);
  return others.empty() ? text : text + "hvdrun: the others: " + others + "\n";
}

std::string timeout_report(const std::vector<std::optional<RankEnd>>& ends, bool are_processes) {
  return with_fates("the job has reached its --timeout", ends, are_processes);
}

std::string interruption_report(int signal, const std::vector<std::optional<RankEnd>>& ends, bool are_processes) {
  return with_fates("ended by " + signal_name(signal), ends, are_processes);
}

}  // namespace hvd::launcher

#include "launcher/watch/job_end.h"

#include <algorithm>
#include <csignal>

namespace hvd::launcher {
namespace {

bool is_often_a_consequence(int signal) { return signal == SIGABRT || signal == SIGPIPE; }

// Whether a rank that others name has left them. A rank that exits with code 0 after hvdrun's signal has not.
bool left_others(const RankEnd& end) { return end.ended_without_shutdown() && end.signal_sent == 0; }

}  // namespace

void JobEnd::rank_ended(int rank, ExitStatus status, const JobEnding& said, TimePoint now) {
  ends_[static_cast<std::size_t>(rank)] = RankEnd{.status = status, .said = said, .signal_sent = signal_sent_};
  --remaining_;
  if (!status.ok()) blame(rank, now);
  if (reason_ == Reason::rank_failed) first_failed_ = cause();
  if (remaining_ == 0) begin(Stage::grace, Reason::none, now + grace_);
}

void JobEnd::blame(int rank, TimePoint now) {
  begin(Stage::grace, Reason::rank_failed, now + grace_);
  if (reason_ != Reason::rank_failed) return;
  if (failures_.empty()) failed_at_ = now;
  failures_.push_back(rank);
  const ExitStatus& status = end_of(rank).status;
  const bool by_somebody = status.by_signal && status.value != last_forwarded_ && !is_often_a_consequence(status.value);
  if (stage_ == Stage::grace && by_somebody && !killed_in_grace_) killed_in_grace_ = rank;
}

int JobEnd::cause() const {
  std::optional<int> found;
  for (auto rank = failures_.begin(); rank != failures_.end() && !found; ++rank) found = cause_seen_by(*rank);
  const int first = found.value_or(failures_.front());
  const RankEnd& end = end_of(first);
  const bool said_nothing = end.said.kind == JobEnding::Kind::untold && !end.status.by_signal && !end.status.ok();
  return said_nothing ? killed_in_grace_.value_or(first) : first;
}

std::optional<int> JobEnd::cause_seen_by(int rank) const {
  if (is_cause(rank)) return rank;
  const auto named = named_by(rank);
  const bool left = named && ends_[static_cast<std::size_t>(*named)] && left_others(end_of(*named));
  return left ? named : std::nullopt;
}

// A rank that is named but ended without failure is not the cause; the rank that could not continue without it is.
bool JobEnd::is_cause(int rank) const {
  const RankEnd& end = end_of(rank);
  if (!has_failed(end)) return false;
  if (end.said.kind != JobEnding::Kind::consequence) return true;
  const auto named = named_by(rank);
  return named && ends_[static_cast<std::size_t>(*named)] && !has_failed(end_of(*named));
}

// A rank that hvdrun's signal has ended has not failed, unless it had reported a failure before.
bool JobEnd::has_failed(const RankEnd& end) const {
  if (end.lost || end.said.kind == JobEnding::Kind::local_failure || left_others(end)) return true;
  return !end.status.ok() && !(end.status.by_signal && end.status.value == end.signal_sent);
}

std::optional<int> JobEnd::named_by(int rank) const {
  const JobEnding& said = end_of(rank).said;
  const bool known = said.kind == JobEnding::Kind::consequence && said.culprit >= 0 && said.culprit != rank &&
                     said.culprit < static_cast<int>(ends_.size());
  return known ? std::optional(said.culprit) : std::nullopt;
}

bool JobEnd::awaits_culprit() const {
  return std::any_of(failures_.begin(), failures_.end(), [this](int rank) {
    const auto named = named_by(rank);
    return named && !ends_[static_cast<std::size_t>(*named)];
  });
}

// A culprit may take longer to end than the ranks that name it, and should end with its own exit code.
Deadline JobEnd::stage_end() const {
  const bool waits = stage_ == Stage::grace && reason_ == Reason::rank_failed && !hurried_ && awaits_culprit();
  return waits ? std::max(stage_deadline_, failed_at_ + kCulpritTime) : stage_deadline_;
}

void JobEnd::interrupted(int signal, TimePoint now) {
  last_forwarded_ = signal;
  begin(Stage::grace, Reason::interrupted, now + grace_);
  if (reason_ == Reason::interrupted && interrupting_signal_ == 0) interrupting_signal_ = signal;
  if (signal == SIGINT && ++keyboard_interrupts_ == 2) begin(Stage::terminating, reason_, now);
}

void JobEnd::output_closed(TimePoint now) {
  if (stage_ == Stage::running) begin(Stage::grace, Reason::output_closed, now);
}

void JobEnd::timed_out(TimePoint now) {
  hurried_ = true;
  if (stage_ <= Stage::grace) begin(Stage::grace, Reason::timed_out, now);
}

void JobEnd::start_failed(int exit_code, TimePoint now) {
  if (reason_ == Reason::none) start_exit_code_ = exit_code;
  begin(Stage::terminating, Reason::start_failed, now);
}

void JobEnd::host_lost(LostHost host, TimePoint now) {
  bool had_ended = true;
  for (const int rank : host.ranks) {
    std::optional<RankEnd>& end = ends_[static_cast<std::size_t>(rank)];
    if (end) continue;
    had_ended = false;
    end = RankEnd{.status = {}, .lost = true};
    --remaining_;
  }
  if (had_ended) return;
  lost_hosts_.push_back(std::move(host));
  begin(Stage::grace, Reason::host_lost, now + grace_);
  if (reason_ != Reason::rank_failed || stage_ != Stage::grace) return;
  const RankEnd& first = end_of(*first_failed_);
  if (first.status.by_signal || first.status.ok() || first.said.kind == JobEnding::Kind::local_failure) return;
  reason_ = Reason::host_lost;
  first_failed_.reset();
}

// Stages only advance, and the first reason is kept. The current stage may get an earlier deadline.
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

// A rank that had failed, but was ended by hvdrun, has no exit code of its own.
int JobEnd::failed_rank_code() const {
  const RankEnd& end = end_of(*first_failed_);
  const bool ended_by_us = end.status.by_signal && end.status.value == end.signal_sent;
  return ended_by_us || end.status.ok() ? 1 : end.status.exit_code();
}

int JobEnd::exit_code() const {
  const bool all_ok = std::all_of(ends_.begin(), ends_.end(),
                                  [](const std::optional<RankEnd>& end) { return end && end->status.ok(); });
  switch (reason_) {
    case Reason::none: return 0;
    case Reason::rank_failed: return failed_rank_code();
    // Programs that handle the signal and exit with code 0 have done what was requested.
    case Reason::interrupted: return all_ok ? 0 : 128 + interrupting_signal_;
    case Reason::output_closed: return 128 + SIGPIPE;
    case Reason::timed_out: return kTimedOutCode;
    case Reason::start_failed: return start_exit_code_;
    case Reason::host_lost: return 1;
  }
  return 1;
}

}  // namespace hvd::launcher

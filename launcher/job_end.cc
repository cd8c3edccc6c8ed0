#include "launcher/job_end.h"

#include <algorithm>
#include <csignal>

namespace hvd::launcher {
namespace {

bool is_often_a_consequence(int signal) { return signal == SIGABRT || signal == SIGPIPE; }

}  // namespace

void JobEnd::rank_ended(int rank, ExitStatus status, TimePoint now) {
  ends_[static_cast<std::size_t>(rank)] = RankEnd{.status = status, .signal_sent = signal_sent_};
  --remaining_;
  if (!status.ok()) blame(rank, status, now);
  if (remaining_ == 0) begin(Stage::grace, Reason::none, now + grace_);
}

void JobEnd::blame(int rank, const ExitStatus& status, TimePoint now) {
  begin(Stage::grace, Reason::rank_failed, now + grace_);
  if (reason_ != Reason::rank_failed) return;
  if (!first_failed_) {
    first_failed_ = rank;
    return;
  }
  const ExitStatus& first = ends_[static_cast<std::size_t>(*first_failed_)]->status;
  const bool by_somebody = status.by_signal && status.value != last_forwarded_ && !is_often_a_consequence(status.value);
  if (stage_ == Stage::grace && !first.by_signal && by_somebody) first_failed_ = rank;
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
  if (ends_[static_cast<std::size_t>(*first_failed_)]->status.by_signal) return;
  reason_ = Reason::host_lost;
  first_failed_.reset();
}

// A stage is entered once, and never a later one left for an earlier one; the first reason stays.
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
  if (stage_ == Stage::running || now < stage_deadline_) return std::nullopt;
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
  return stage_deadline_;
}

int JobEnd::exit_code() const {
  const bool all_ok = std::all_of(ends_.begin(), ends_.end(),
                                  [](const std::optional<RankEnd>& end) { return end && end->status.ok(); });
  switch (reason_) {
    case Reason::none: return 0;
    case Reason::rank_failed: return ends_[static_cast<std::size_t>(*first_failed_)]->status.exit_code();
    // A program that takes the signal as a request and ends well has done what was asked.
    case Reason::interrupted: return all_ok ? 0 : 128 + interrupting_signal_;
    case Reason::output_closed: return 128 + SIGPIPE;
    case Reason::timed_out: return kTimedOutCode;
    case Reason::start_failed: return start_exit_code_;
    case Reason::host_lost: return 1;
  }
  return 1;
}

}  // namespace hvd::launcher

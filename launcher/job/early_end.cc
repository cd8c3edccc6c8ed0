#include "launcher/job/early_end.h"

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <utility>

#include "launcher/plan/host_plan.h"

namespace hvd::launcher {
namespace {

constexpr Duration kTermNotice = 20s;  // from SIGTERM to the end; Slurm and Kubernetes kill after 30 s
constexpr Duration kSameNotice = 2s;

}  // namespace

EarlyEnd::EarlyEnd(Options options, Epochs& epochs, EventLoop& loop, const SignalSource& signals, Callbacks callbacks)
    : options_(options), epochs_(epochs), callbacks_(std::move(callbacks)) {
  if (options_.margin > Duration::zero()) watch_allocation(loop, signals);
}

void EarlyEnd::watch_allocation(EventLoop& loop, const SignalSource& signals) {
  const Environment environment = parse_environment(environ);
  if (!environment.contains("SLURM_JOB_ID")) return;
  allocation_ = std::make_unique<AllocationEnd>(
      loop, signals, environment, options_.margin, kAllocationInterval,
      AllocationEnd::Callbacks{
          .known = [this](std::optional<TimePoint> limit, bool has_changed) { set_time_limit(limit, has_changed); },
          .complaint = callbacks_.say});
}

void EarlyEnd::set_time_limit(std::optional<TimePoint> limit, bool has_changed) {
  if (commit_limit_ || epochs_.over()) return;
  time_limit_ = limit;
  if (!has_changed && !options_.verbose) return;
  if (!limit) return callbacks_.say("the allocation's end was changed: it has none any more");
  const auto left = std::to_string(std::lround(seconds(*limit - Clock::now())));
  callbacks_.say((has_changed ? "the allocation's end was changed: the job ends in "
                              : "the allocation ends: so the job does in ") +
                 left + " s, if it is not finished");
}

// Schedulers send SIGUSR1 some time before they end a job, if they are told to, and SIGTERM when they do. A second
// SIGTERM is an order, unless it is the same one: Slurm may send it to hvdrun and to the script that passes it on.
bool EarlyEnd::take_notice(int signal) {
  if (epochs_.over() || (signal != SIGTERM && signal != SIGUSR1)) return false;
  const TimePoint now = Clock::now();
  if (signal == SIGTERM && now >= first_sigterm_.emplace(first_sigterm_.value_or(now)) + kSameNotice) return false;
  begin("received " + signal_name(signal), signal == SIGTERM ? kTermNotice : options_.limit);
  return true;
}

void EarlyEnd::begin(const std::string& cause, Duration limit) {
  if (!commit_limit_) callbacks_.say(cause + ": the job ends at its next commit");
  commit_limit_ = earlier(commit_limit_, Clock::now() + limit);
  epochs_.end_early();
}

void EarlyEnd::check_time(TimePoint now) {
  if (time_limit_ && now >= *time_limit_) {
    time_limit_.reset();
    if (!epochs_.over()) begin("the time of the allocation is almost up");
  }
  if (!commit_limit_ || now < *commit_limit_) return;
  commit_limit_.reset();
  if (epochs_.over()) return;
  callbacks_.say("the ranks have not come to a commit in time, and are ended");
  callbacks_.give_up();
}

}  // namespace hvd::launcher

#include "core/control/coordinator/stall_inspector.h"

#include <algorithm>

#include "core/base/text.h"

namespace hvd {
namespace {

constexpr std::size_t kMaxNamesInNotice = 6;
constexpr std::size_t kMaxRanksDescribed = 3;

}  // namespace

StallInspector::StallInspector(Duration warning, Duration limit, DescribeRank describe_rank, std::vector<int> job_ranks)
    : warning_(warning), limit_(limit), describe_rank_(std::move(describe_rank)), job_ranks_(std::move(job_ranks)) {}

void StallInspector::started(TimePoint now) {
  if (waiting_++ == 0) plan_check(now);
}

void StallInspector::ended() {
  if (--waiting_ == 0) forget();
}

bool StallInspector::nothing_waits() const { return waiting_ == 0; }

Deadline StallInspector::next_check() const { return next_check_; }

StallInspector::Findings StallInspector::inspect(std::span<const WaitingOperation> operations, TimePoint now) {
  Findings findings;
  if (operations.empty()) return findings;
  const bool overdue = warning_ > Duration::zero() && now - operations.front().since >= warning_;
  if (!overdue) last_warning_.clear();
  if (overdue && now >= quiet_until_) {
    const bool is_first = last_warning_.empty();
    Stalled found = stalled(operations, now);
    if (found != last_warning_) {
      findings.warning = warning(operations, now);
      pause_ = is_first ? warning_ : pause_ * 2;
      last_warning_ = std::move(found);
    }
    quiet_until_ = later(now, pause_);
  }
  std::size_t remaining = 0;
  if (limit_ > Duration::zero()) {
    while (remaining < operations.size() && now - operations[remaining].since >= limit_) {
      findings.expired.push_back(remaining++);
    }
  }
  if (remaining < operations.size()) plan_check(operations[remaining].since);
  return findings;
}

Status StallInspector::status_of_expired(const WaitingOperation& operation, TimePoint now) const {
  return Status(StatusCode::timeout, operation_text(operation.collective, operation.name) + ": given up after " +
                                         age_text(now - operation.since) + " of waiting for " +
                                         describe(operation.missing) + " to submit it");
}

std::string StallInspector::describe(std::vector<int> ranks) const {
  if (ranks.size() > kMaxRanksDescribed) {
    if (!job_ranks_.empty()) {
      for (int& rank : ranks) rank = job_ranks_[static_cast<std::size_t>(rank)];
    }
    return "ranks " + ranges_text(ranks);
  }
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += describe_rank_(ranks[i]);
  }
  return text;
}

// quiet_until_ stays: repeated stalls are not reported each time.
void StallInspector::forget() {
  next_check_ = Deadline::max();
  last_warning_.clear();
}

StallInspector::Stalled StallInspector::stalled(std::span<const WaitingOperation> operations, TimePoint now) const {
  Stalled result;
  for (const WaitingOperation& operation : operations) {
    if (now - operation.since >= warning_ / 2) result.emplace_back(operation.name, operation.missing);
  }
  return result;
}

void StallInspector::plan_check(TimePoint oldest) {
  next_check_ = Deadline::max();
  if (warning_ > Duration::zero()) next_check_ = std::max(later(oldest, warning_), quiet_until_);
  if (limit_ > Duration::zero()) next_check_ = std::min(next_check_, later(oldest, limit_));
}

// Lists names with the same missing ranks together.
std::string StallInspector::warning(std::span<const WaitingOperation> operations, TimePoint now) const {
  std::vector<std::pair<const std::vector<int>*, std::string>> groups;
  std::size_t listed = 0;
  std::size_t stalled = 0;
  for (const WaitingOperation& operation : operations) {
    if (now - operation.since < warning_ / 2) continue;
    if (++stalled > kMaxNamesInNotice) continue;
    ++listed;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& known) { return *known.first == operation.missing; });
    if (group == groups.end()) group = groups.insert(group, {&operation.missing, std::string()});
    if (!group->second.empty()) group->second += ", ";
    group->second +=
        operation_text(operation.collective, operation.name) + " (" + age_text(now - operation.since) + ")";
  }
  std::string text = "stalled: ";
  for (const auto& [missing, names] : groups) {
    if (text.back() != ' ') text += "; ";
    text += "waiting for " + describe(*missing) + " to submit " + names;
  }
  if (stalled > listed) text += "; and " + std::to_string(stalled - listed) + " more";
  return text;
}

}  // namespace hvd

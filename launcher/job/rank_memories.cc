#include "launcher/job/rank_memories.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr Duration kAnswerTime = 500ms;
constexpr Duration kLookAgain = 5ms;
constexpr Duration kStallPeriod = 1s;
constexpr Duration kInitPollInterval = 10ms;

}  // namespace

RankMemories::RankMemories(EventLoop& loop, HostListener& listener, int host)
    : loop_(loop),
      listener_(listener),
      host_(host),
      answer_timer_(loop_, [this] { look_for_answers(); }),
      stall_timer_(loop_, [this] { look_for_stalls(); }),
      init_timer_(loop_, [this] { look_for_initialization(); }) {}

const RankMemory* RankMemories::make(int rank, bool verbose) {
  try {
    Entry& entry = entries_[rank];
    entry.memory = std::make_unique<RankMemory>();
    return entry.memory.get();
  } catch (const Error& error) {
    entries_.erase(rank);
    if (verbose && !std::exchange(has_complained_, true)) {
      listener_.complaint("rank " + std::to_string(rank) + " has no flight recorder: " + error.what());
    }
    return nullptr;
  }
}

void RankMemories::started(int rank, pid_t pid) {
  const auto entry = entries_.find(rank);
  if (entry != entries_.end()) entry->second.pid = pid;
}

JobEnding RankMemories::ended(int rank) {
  const auto entry = entries_.find(rank);
  if (entry == entries_.end()) return {};
  entry->second.has_ended = true;
  look_for_initialization();
  return entry->second.memory->job_ending();
}

void RankMemories::watch_initialization() {
  awaits_init_ = !entries_.empty();
  look_for_initialization();
}

// Stops polling once a rank has ended without completing init: then not all ranks here ever will.
void RankMemories::look_for_initialization() {
  if (!awaits_init_) return;
  bool all_have_met = true;
  for (const auto& [rank, entry] : entries_) {
    if (entry.memory->has_initialized()) continue;
    all_have_met = false;
    if (entry.has_ended) awaits_init_ = false;
  }
  if (all_have_met) {
    awaits_init_ = false;
    listener_.initialized(host_);
  }
  if (awaits_init_) init_timer_.set(deadline_after(kInitPollInterval));
}

void RankMemories::ask(std::uint64_t question, bool with_stacks) {
  if (!with_stacks) return tell(question, false);
  questions_.push_back({.number = question, .deadline = deadline_after(kAnswerTime)});
  if (questions_.size() > 1) return;
  ask_ranks();
  look_for_answers();
}

void RankMemories::ask_ranks() {
  for (auto& [rank, entry] : entries_) entry.is_asked = entry.pid > 0 && entry.memory->ask_for_stacks(entry.pid);
}

// Questions that were added meanwhile get the same answers.
void RankMemories::look_for_answers() {
  bool complete = true;
  for (auto& [rank, entry] : entries_) {
    if (entry.is_asked && !entry.memory->answer_is_complete()) complete = false;
  }
  if (!complete && Clock::now() < questions_.front().deadline) return answer_timer_.set(deadline_after(kLookAgain));
  for (const Question& question : std::exchange(questions_, {})) tell(question.number, true);
}

void RankMemories::tell(std::uint64_t question, bool with_stacks) {
  const TimePoint now = Clock::now();
  std::vector<RankStatus> statuses;
  for (const auto& [rank, entry] : entries_) {
    if (entry.pid <= 0) continue;
    statuses.push_back(entry.memory->status(with_stacks, entry.pid, now));
    statuses.back().rank = rank;
    statuses.back().ended = entry.has_ended;
  }
  listener_.statuses(host_, question, std::move(statuses));
}

void RankMemories::look_for_stalls() {
  const bool found = std::any_of(entries_.begin(), entries_.end(), [now = Clock::now()](const auto& entry) {
    return !entry.second.has_ended && entry.second.memory->is_stalled(now);
  });
  const bool was_found = std::exchange(stalled_, found);
  if (!was_found) announcements_ = looks_ = 0;
  // Repeated at growing intervals while the stall lasts, because the first report may not have found its cause yet.
  if (found ? looks_++ == (1 << announcements_) - 1 : was_found) {
    ++announcements_;
    listener_.stalled(host_, found);
  }
  stall_timer_.set(deadline_after(kStallPeriod));
}

}  // namespace hvd::launcher

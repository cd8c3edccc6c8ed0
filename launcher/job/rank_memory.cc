#include "launcher/job/rank_memory.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/base/error.h"
#include "core/flight/flight_recorder.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kAnnouncement = 1024;  // bytes at the beginning
constexpr std::size_t kStacks = 256 << 10;   // bytes, including the announcement

struct Announcement {
  int signal = 0;
  pid_t pid = 0;
  std::string package;
};

// The rank may have written any text there, or nothing.
std::optional<Announcement> read_announcement(const SharedMemory& stacks) {
  const std::string text(reinterpret_cast<const char*>(stacks.data()), kAnnouncement);
  std::istringstream line(text.substr(0, text.find('\n')));
  std::string what;
  int version = 0;
  Announcement found;
  if (!(line >> what >> version >> found.signal >> found.pid) || what != "hvd-stacks" || version != 1)
    return std::nullopt;
  if (found.signal < SIGRTMIN || found.signal > SIGRTMAX || found.pid <= 0) return std::nullopt;
  std::getline(line >> std::ws, found.package);
  return found;
}

std::string status_of(pid_t pid, std::string_view field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return line.substr(std::min(line.size(), line.find_first_not_of(" \t", field.size())));
  }
  return "";
}

bool catches(pid_t pid, int signal) {
  const std::string mask = status_of(pid, "SigCgt:");
  std::uint64_t caught = 0;
  std::from_chars(mask.data(), mask.data() + mask.size(), caught, 16);
  return (caught >> (signal - 1) & 1) != 0;
}

constexpr Duration kStackAnswerTime = 500ms;
constexpr Duration kStackPollInterval = 5ms;
constexpr Duration kStallPeriod = 1s;
constexpr Duration kInitPollInterval = 10ms;

}  // namespace

RankMemory::RankMemory() : recorder_(make_flight_memory()), stacks_(SharedMemory::create(kStacks, "hvd-stacks")) {}

std::vector<std::pair<std::string, std::string>> RankMemory::variables() const {
  return {{"HVD_FLIGHT_RECORDER", std::to_string(recorder_.fd())}, {"HVD_FLIGHT_STACKS", std::to_string(stacks_.fd())}};
}

std::vector<int> RankMemory::descriptors() const { return {recorder_.fd(), stacks_.fd()}; }

bool RankMemory::is_stalled(TimePoint now) {
  const FlightProgress progress = read_flight_progress(recorded());
  const Seen seen{progress.epoch, progress.begun};
  if (seen != last_seen_) {
    last_seen_ = seen;
    since_ = now;
    all_ended_ = progress.begun == 0;
  }
  if (progress.warned) return true;
  if (!progress.epoch || progress.stall_time == Duration::zero()) return false;
  if (progress.initializing) return now - *progress.epoch >= progress.stall_time;
  for (const auto& since : {progress.kept_waiting, progress.waits_for_server}) {
    if (since && now - *since >= progress.stall_time) return true;
  }
  if (all_ended_ || now - since_ < progress.stall_time) return false;
  const auto oldest = oldest_under_way(recorded());
  all_ended_ = !oldest;  // until the next one begins
  return oldest && now - *oldest >= progress.stall_time;
}

bool RankMemory::has_initialized() const { return read_flight_progress(recorded()).has_initialized; }

JobEnding RankMemory::job_ending() const { return read_job_ending(recorded()); }

bool RankMemory::ask_for_stacks(pid_t group) {
  const auto announced = read_announcement(stacks_);
  if (!announced || getpgid(announced->pid) != group || !catches(announced->pid, announced->signal)) return false;
  std::memset(stacks_.data() + kAnnouncement, 0, stacks_.size() - kAnnouncement);
  seen_ = 0;
  if (lseek(stacks_.fd(), kAnnouncement, SEEK_SET) < 0) return false;
  return kill(announced->pid, announced->signal) == 0;
}

bool RankMemory::answer_is_complete() {
  const off_t written = lseek(stacks_.fd(), 0, SEEK_CUR) - static_cast<off_t>(kAnnouncement);
  const std::size_t before = std::exchange(seen_, static_cast<std::size_t>(std::max<off_t>(written, 0)));
  return seen_ > 0 && seen_ == before;
}

StackAnswer RankMemory::answer() const {
  const auto* const begin = reinterpret_cast<const char*>(stacks_.data()) + kAnnouncement;
  const auto* const end = reinterpret_cast<const char*>(stacks_.data()) + stacks_.size();
  StackAnswer answer{.text = std::string(begin, std::find(begin, end, '\0')), .package = {}};
  if (auto announced = read_announcement(stacks_)) answer.package = std::move(announced->package);
  return answer;
}

RankStatus RankMemory::status(bool with_stacks, pid_t group, TimePoint now) const {
  const FlightSnapshot facts = read_flight_snapshot(recorded()).value_or(FlightSnapshot{});
  RankStatus status =
      make_rank_status(facts, read_flight_operations(recorded()), with_stacks ? answer() : StackAnswer{}, now);
  const bool is_its_own = facts.pid > 0 && getpgid(facts.pid) == group;
  status.stopped = status_of(is_its_own ? facts.pid : group, "State:").starts_with('T');
  return status;
}

std::span<const std::byte> RankMemory::recorded() const { return {recorder_.data(), recorder_.size()}; }

RankMemories::RankMemories(EventLoop& loop, HostListener& listener, int host)
    : loop_(loop),
      listener_(listener),
      host_(host),
      answer_timer_(loop_, [this] { look_for_answers(); }),
      stall_timer_(loop_, [this] { look_for_stalls(); }),
      init_timer_(loop_, [this] { look_for_initialization(); }) {}

const RankMemory* RankMemories::make(const RankPlan& process, bool verbose) {
  try {
    Entry& entry = entries_[process.numbers.rank];
    entry.is_server = process.server >= 0;
    entry.memory = std::make_unique<RankMemory>();
    return entry.memory.get();
  } catch (const Error& error) {
    entries_.erase(process.numbers.rank);
    if (verbose && !std::exchange(has_complained_, true)) {
      listener_.warning(process_name(process) + " has no flight recorder: " + error.what());
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

void RankMemories::forget(int rank) { entries_.erase(rank); }

bool RankMemories::is_server(int rank) const {
  const auto entry = entries_.find(rank);
  return entry != entries_.end() && entry->second.is_server;
}

void RankMemories::watch_for_stalls() { look_for_stalls(); }

void RankMemories::watch_initialization() {
  awaits_init_ = !entries_.empty();
  look_for_initialization();
}

// Stops polling once a rank has ended without completing init: then not all ranks here ever will.
void RankMemories::look_for_initialization() {
  if (!awaits_init_) return;
  bool all_have_met = true;
  for (const auto& [rank, entry] : entries_) {
    if (entry.is_server || entry.memory->has_initialized()) continue;
    all_have_met = false;
    if (entry.has_ended) awaits_init_ = false;
  }
  if (all_have_met) {
    awaits_init_ = false;
    listener_.initialized(host_);
  }
  if (awaits_init_) init_timer_.set(deadline_after(kInitPollInterval));
}

void RankMemories::query(std::uint64_t query_id, bool with_stacks) {
  if (!with_stacks) return answer(query_id, false);
  queries_.push_back({.id = query_id, .deadline = deadline_after(kStackAnswerTime)});
  if (queries_.size() > 1) return;
  ask_ranks();
  look_for_answers();
}

// Queries that were added meanwhile get the same answers.
void RankMemories::look_for_answers() {
  bool complete = true;
  for (auto& [rank, entry] : entries_) {
    if (entry.is_asked && !entry.memory->answer_is_complete()) complete = false;
  }
  if (!complete && Clock::now() < queries_.front().deadline)
    return answer_timer_.set(deadline_after(kStackPollInterval));
  for (const Query& query : std::exchange(queries_, {})) answer(query.id, true);
}

void RankMemories::answer(std::uint64_t query_id, bool with_stacks) {
  const TimePoint now = Clock::now();
  std::vector<RankStatus> statuses;
  for (const auto& [rank, entry] : entries_) {
    if (entry.pid <= 0) continue;
    statuses.push_back(entry.memory->status(with_stacks, entry.pid, now));
    statuses.back().rank = rank;
    statuses.back().ended = entry.has_ended;
  }
  listener_.statuses(host_, query_id, std::move(statuses));
}

void RankMemories::ask_ranks() {
  for (auto& [rank, entry] : entries_) entry.is_asked = entry.pid > 0 && entry.memory->ask_for_stacks(entry.pid);
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

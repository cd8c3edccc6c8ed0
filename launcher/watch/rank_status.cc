#include "launcher/watch/rank_status.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <ranges>
#include <utility>

#include "core/tensor/tensor.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kThread = "hread 0x";  // "Thread 0x..." and "Current thread 0x..."
constexpr std::string_view kCurrent = "Current thread";
constexpr std::string_view kFile = "  File \"", kLine = "\", line ", kIn = " in ";

// Parses `  File "train.py", line 48 in load_batch`.
std::optional<PythonFrame> parse_frame(std::string_view text) {
  if (!text.starts_with(kFile)) return std::nullopt;
  text.remove_prefix(kFile.size());
  const std::size_t line = text.rfind(kLine);
  if (line == std::string_view::npos) return std::nullopt;
  PythonFrame frame{.file = printable(text.substr(0, line)), .line = 0, .function = {}};
  text.remove_prefix(line + kLine.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), frame.line);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with(kIn)) frame.function = printable(text.substr(kIn.size()));
  return frame;
}

// The frames of the thread marked as current, else of the last thread, which is the oldest.
std::vector<PythonFrame> frames_of_main_thread(std::string_view stack) {
  std::vector<PythonFrame> frames;
  bool current = false;
  for (const auto& part : std::views::split(stack, '\n')) {
    const std::string_view line(part.begin(), part.end());
    if (line.substr(0, kCurrent.size() + kThread.size()).find(kThread) != std::string_view::npos) {
      if (current) break;
      frames.clear();
      current = line.starts_with(kCurrent);
    } else if (auto frame = parse_frame(line)) {
      frames.push_back(std::move(*frame));
    }
  }
  return frames;
}

bool is_in(std::string_view file, std::string_view folder) {
  return !folder.empty() && file.size() > folder.size() && file.starts_with(folder) && file[folder.size()] == '/';
}

bool is_of_library(std::string_view file) {
  for (const std::string_view part : {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "}) {
    if (file.find(part) != std::string_view::npos) return true;
  }
  return false;
}

constexpr std::size_t kMaxOpen = 8;
constexpr std::size_t kMaxSets = 64;
constexpr std::size_t kMaxStack = 16 << 10;

std::string shape_of(const RecordedOperation& operation) {
  if (operation.tensors == 0) return "";
  if (operation.tensors > 1) {
    return std::to_string(operation.tensors) + (operation.tensors == 255 ? " or more" : "") + " tensors, " +
           std::to_string(operation.bytes) + " bytes";
  }
  return dtype_name(operation.dtype) + hvd::to_string(operation.shape);
}

OperationStatus to_rank_status(const RecordedOperation& operation, TimePoint now) {
  using State = OperationStatus::State;
  const bool performs = operation.state == FlightState::performing;
  const Duration age = (operation.under_way() ? now : operation.ended) - operation.submitted;
  return {.state = !operation.under_way() ? State::given_up
                   : performs             ? State::performs
                                          : State::waits,
          .process_set = operation.process_set,
          .sequence = operation.sequence,
          .what = collective_name(operation.collective),
          .name = operation.name,
          .shape = shape_of(operation),
          .age = std::max(age, Duration::zero())};
}

// The operations under way, and those that the job's failure has ended: it ends all open operations at once, and none
// completes after it, while after an operation that failed alone others complete.
std::vector<const RecordedOperation*> open_ones(const std::vector<RecordedOperation>& operations, bool job_has_failed) {
  TimePoint last_done = TimePoint::min();
  for (const RecordedOperation& operation : operations) {
    if (operation.state == FlightState::done) last_done = std::max(last_done, operation.ended);
  }
  std::vector<const RecordedOperation*> open;
  for (const RecordedOperation& operation : operations) {
    const bool given_up = job_has_failed && operation.state == FlightState::failed && operation.ended >= last_done;
    if (operation.under_way() || given_up) open.push_back(&operation);
  }
  return open;
}

std::optional<Duration> since_progress(const std::vector<RecordedOperation>& operations, TimePoint now) {
  if (operations.empty()) return std::nullopt;
  TimePoint last{};
  for (const RecordedOperation& operation : operations) {
    last = std::max({last, operation.started, operation.ended});
  }
  return std::max(now - std::max(last, operations.front().submitted), Duration::zero());
}

std::vector<ProcessSetStatus> sets_in(const std::vector<RecordedOperation>& operations) {
  std::map<std::int32_t, ProcessSetStatus> sets;
  for (const RecordedOperation& operation : operations) {
    if (sets.size() == kMaxSets && !sets.contains(operation.process_set)) continue;
    ProcessSetStatus& set = sets[operation.process_set];
    set.process_set = operation.process_set;
    set.submitted = std::max(set.submitted, operation.sequence);
    if (operation.state == FlightState::done) set.done = std::max(set.done, operation.sequence);
  }
  std::vector<ProcessSetStatus> list;
  for (const auto& [number, set] : sets) list.push_back(set);
  return list;
}

// In process set 0, so that ranks can be compared; 0 if none of the last operations is in it.
std::uint64_t submitted_by(const RankStatus& status) {
  for (const ProcessSetStatus& set : status.sets) {
    if (set.process_set == 0) return set.submitted;
  }
  return 0;
}

using Number = std::int64_t (*)(const RankStatus&);

constexpr std::pair<const char*, Number> kColumns[] = {
    {"pid", [](const RankStatus& status) -> std::int64_t { return status.pid; }},
    {"stopped", [](const RankStatus& status) -> std::int64_t { return status.stopped ? 1 : 0; }},
    {"operations", [](const RankStatus& status) { return static_cast<std::int64_t>(status.counters.operations); }},
    {"bytes", [](const RankStatus& status) { return static_cast<std::int64_t>(status.counters.bytes); }},
    {"locked_steps", [](const RankStatus& status) { return static_cast<std::int64_t>(status.counters.locked_steps); }},
    {"rounds", [](const RankStatus& status) { return static_cast<std::int64_t>(status.counters.rounds); }},
    {"lock_state", [](const RankStatus& status) { return static_cast<std::int64_t>(status.counters.lock_state); }},
    {"exposed_ns", [](const RankStatus& status) -> std::int64_t { return status.counters.exposed_time.count(); }},
    {"since_progress_ns",
     [](const RankStatus& status) -> std::int64_t { return status.since_progress.value_or(Duration::zero()).count(); }},
    {"submitted", [](const RankStatus& status) { return static_cast<std::int64_t>(submitted_by(status)); }},
    {"in_flight",
     [](const RankStatus& status) { return static_cast<std::int64_t>(status.open.size() + status.more_open); }},
    {"stalled", [](const RankStatus& status) -> std::int64_t { return status.stall.empty() ? 0 : 1; }},
};

using ShardNumber = std::uint64_t (*)(const ShardFacts&);

constexpr std::pair<const char*, ShardNumber> kShardColumns[] = {
    {"shard", [](const ShardFacts& shard) { return static_cast<std::uint64_t>(shard.number); }},
    {"answers", [](const ShardFacts& shard) -> std::uint64_t { return shard.answers ? 1 : 0; }},
    {"pushes", [](const ShardFacts& shard) { return shard.pushes; }},
    {"pulls", [](const ShardFacts& shard) { return shard.pulls; }},
    {"rows", [](const ShardFacts& shard) { return shard.rows; }},
    {"bytes", [](const ShardFacts& shard) { return shard.bytes; }},
    {"staleness_median", [](const ShardFacts& shard) { return shard.staleness_median; }},
    {"staleness_worst", [](const ShardFacts& shard) { return shard.staleness_worst; }},
    {"queue", [](const ShardFacts& shard) { return shard.queue; }},
    {"waiting", [](const ShardFacts& shard) { return shard.waiting; }},
    {"slowest", [](const ShardFacts& shard) { return static_cast<std::uint64_t>(shard.slowest) + 1; }},  // 0: nobody
};

// A rank without shards is not a server. The line of a server that has not answered, or has no shard, has "-" for them.
std::string server_lines(const StatusOfRank& process) {
  const std::vector<ShardFacts> none, &shards = process.status ? process.status->shards : none;
  if (process.server < 0 && shards.empty()) return "";
  std::string begin =
      std::to_string(process.server < 0 ? process.rank : process.server) + "\t" + printable(process.host);
  begin += process.status ? "\t" + std::to_string(process.status->pid) + "\t" + (process.status->stopped ? "1" : "0")
                          : "\t-\t-";
  std::string text;
  for (const ShardFacts& shard : shards) {
    text += begin;
    for (const auto& [name, number] : kShardColumns) text += "\t" + std::to_string(number(shard));
    text += "\t" + std::to_string(process.status->waited.count()) + "\n";
  }
  if (!text.empty()) return text;
  for (std::size_t i = 0; i <= std::size(kShardColumns); ++i) begin += "\t-";
  return begin + "\n";
}

std::string server_table(const std::vector<StatusOfRank>& processes) {
  std::string lines;
  for (const StatusOfRank& process : processes) lines += server_lines(process);
  if (lines.empty()) return "";
  std::string text = "\nserver\thost\tpid\tstopped";
  for (const auto& [name, number] : kShardColumns) text += std::string("\t") + name;
  return text + "\twaited_ns\n" + lines;
}

}  // namespace

std::string to_string(const PythonFrame& frame) {
  const std::size_t slash = frame.file.rfind('/');
  std::string text = slash == std::string::npos ? frame.file : frame.file.substr(slash + 1);
  text += ":" + std::to_string(frame.line);
  return frame.function.empty() ? text : text + " in " + frame.function;
}

std::optional<PythonFrame> frame_of_script(std::string_view stack, std::string_view package) {
  std::optional<PythonFrame> innermost;
  for (PythonFrame& frame : frames_of_main_thread(stack)) {
    if (is_in(frame.file, package)) continue;
    if (!is_of_library(frame.file)) return std::move(frame);
    if (!innermost) innermost = std::move(frame);
  }
  return innermost;
}

RankStatus make_rank_status(const FlightSnapshot& facts, const std::vector<RecordedOperation>& operations,
                            const StackAnswer& stack, TimePoint now) {
  RankStatus status;
  status.rank = facts.rank;
  status.pid = facts.pid;
  status.counters = facts.counters;
  status.in_job = facts.epoch.has_value();
  if (facts.epoch && facts.initializing) status.initializing = std::max(now - *facts.epoch, Duration::zero());
  status.stall_time = facts.stall_time;
  status.since_progress = since_progress(operations, now);
  status.shards = facts.shards;
  status.awaited = facts.awaited;
  for (const auto& since : {facts.kept_waiting, facts.waits_for_server}) {
    if (since) status.waited = std::max(status.waited, now - *since);
  }
  const auto open = open_ones(operations, facts.job_has_failed);
  for (const RecordedOperation* operation : open) {
    if (status.open.size() < kMaxOpen) status.open.push_back(to_rank_status(*operation, now));
  }
  status.more_open = static_cast<std::uint32_t>(open.size() - status.open.size());
  status.sets = sets_in(operations);
  status.stall = facts.stall;
  status.frame = frame_of_script(stack.text, stack.package);
  status.stack = stack.text.substr(0, kMaxStack);
  return status;
}

std::string status_table(const std::vector<StatusOfRank>& processes) {
  std::string text = "rank\thost";
  for (const auto& [name, number] : kColumns) text += std::string("\t") + name;
  const bool is_elastic =
      std::ranges::any_of(processes, [](const StatusOfRank& rank) { return rank.epoch_rank.has_value(); });
  if (is_elastic) text += "\tepoch\tepoch_rank";
  text += "\n";
  for (const StatusOfRank& rank : processes) {
    if (rank.server >= 0) continue;
    text += std::to_string(rank.rank) + "\t" + printable(rank.host);
    for (const auto& [name, number] : kColumns) {
      text += "\t" + (rank.status ? std::to_string(number(*rank.status)) : "-");
    }
    if (is_elastic && rank.epoch_rank) {
      text += "\t" + std::to_string(rank.epoch_rank->epoch) + "\t" + std::to_string(rank.epoch_rank->rank);
    } else if (is_elastic) {
      text += "\t-\t-";
    }
    text += "\n";
  }
  return text + server_table(processes);
}

}  // namespace hvd::launcher

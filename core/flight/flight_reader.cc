#include "core/flight/flight_reader.h"

#include <algorithm>
#include <bit>

namespace hvd {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kAttempts = 4;  // to read a record that is being written

const FlightMemory* as_flight(std::span<const std::byte> memory) {
  if (memory.size() < sizeof(FlightMemory)) return nullptr;
  const auto* flight = reinterpret_cast<const FlightMemory*>(memory.data());
  return flight->magic == kFlightMagic && flight->layout == kFlightLayout ? flight : nullptr;
}

TimePoint time_of(std::int64_t nanoseconds) { return TimePoint(Duration(nanoseconds)); }

std::string text_of(const char* text, std::size_t size) {
  return printable(std::string_view(text, static_cast<std::size_t>(std::find(text, text + size, '\0') - text)));
}

template <std::size_t kWords>
std::string text_in(const std::array<std::atomic<std::uint64_t>, kWords>& text) {
  std::array<std::uint64_t, kWords> words;
  for (std::size_t i = 0; i < kWords; ++i) words[i] = text[i].load(kRelaxed);
  return text_of(reinterpret_cast<const char*>(words.data()), sizeof words);
}

// None for 0, which a counter has where there is nothing.
std::int32_t number_from_one(const Counter& counter) {
  const std::uint64_t value = counter.value();
  return value > 0 && value <= 1u << 30 ? static_cast<std::int32_t>(value) - 1 : kNobody;
}

std::optional<TimePoint> since_in(const Counter& counter) {
  const std::uint64_t value = counter.value();
  if (value == 0 || value >> 62 != 0) return std::nullopt;
  return time_of(static_cast<std::int64_t>(value));
}

std::optional<TimePoint> kept_waiting_since(const Metrics& metrics) {
  std::optional<TimePoint> first;
  for (const ShardMetrics& shard : metrics.shards) {
    if (shard.number.value() == 0 || shard.slowest.value() == 0) continue;
    const auto since = since_in(shard.waiting_since);
    if (since && (!first || *since < *first)) first = since;
  }
  return first;
}

std::vector<ShardFacts> shards_in(const Metrics& metrics) {
  std::vector<ShardFacts> shards;
  for (const ShardMetrics& shard : metrics.shards) {
    const std::int32_t number = number_from_one(shard.number);
    if (number == kNobody) continue;
    shards.push_back({.number = number,
                      .answers = shard.answers.value() != 0,
                      .pushes = shard.pushes.value(),
                      .pulls = shard.pulls.value(),
                      .rows = shard.rows.value(),
                      .bytes = shard.bytes.value(),
                      .staleness_median = shard.staleness_median.value(),
                      .staleness_worst = shard.staleness_worst.value(),
                      .queue = shard.queue.value(),
                      .waiting = shard.waiting.value(),
                      .slowest = number_from_one(shard.slowest)});
  }
  return shards;
}

// Empty if the values are invalid.
std::optional<RecordedOperation> to_operation(const FlightOperation& operation) {
  const auto collective = collective_from(operation.collective);
  const auto dtype = dtype_from(operation.dtype);
  if (!collective || !dtype) return std::nullopt;
  RecordedOperation result;
  result.process_set = operation.process_set;
  result.collective = *collective;
  result.name = text_of(operation.name.data(), operation.name.size());
  result.dtype = *dtype;
  const std::size_t known = std::min<std::size_t>(operation.dimensions, operation.shape.size());
  result.shape.assign(operation.shape.begin(), operation.shape.begin() + static_cast<std::ptrdiff_t>(known));
  result.tensors = operation.tensors;
  result.bytes = operation.bytes;
  return result;
}

// Everything except the number and the state.
std::optional<RecordedOperation> read_rest(const FlightRecord& record) {
  FlightWords words;
  for (std::size_t i = 0; i < kFlightWords; ++i) words[i] = record.operation[i].load(kRelaxed);
  auto result = to_operation(std::bit_cast<FlightOperation>(words));
  if (!result) return result;
  const std::int64_t submitted = record.submitted.load(kRelaxed), started = record.started.load(kRelaxed);
  const std::int64_t ended = record.ended.load(kRelaxed);
  if (submitted < 0 || started < 0 || ended < 0) return std::nullopt;  // so that subtraction cannot overflow
  result->sequence = record.sequence.load(kRelaxed);
  result->submitted = time_of(submitted);
  result->started = time_of(started);
  result->ended = time_of(std::max(ended, started));
  return result;
}

bool means_something(std::uint64_t word) {
  return state_in(word) >= static_cast<std::uint8_t>(FlightState::submitted) &&
         state_in(word) <= static_cast<std::uint8_t>(FlightState::failed) &&
         code_in(word) <= static_cast<std::uint8_t>(StatusCode::internal);
}

std::optional<RecordedOperation> read_record(const FlightRecord& record) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t before = record.word.load(std::memory_order_acquire);
    if (!means_something(before)) return std::nullopt;
    auto operation = read_rest(record);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (record.word.load(kRelaxed) != before) continue;
    if (!operation) return std::nullopt;
    operation->number = number_in(before);
    operation->state = static_cast<FlightState>(state_in(before));
    operation->code = static_cast<StatusCode>(code_in(before));
    return operation;
  }
  return std::nullopt;
}

void read_stall(const FlightStall& stall, FlightSnapshot& facts) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t before = stall.changes.load(std::memory_order_acquire);
    if (stall.stalled.load(kRelaxed) == 0) return;
    std::string text = text_in(stall.text);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 != 0 || stall.changes.load(kRelaxed) != before) continue;
    facts.stall = std::move(text);
    return;
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result(text);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto byte = static_cast<unsigned char>(result[i]);
    if (byte < 0x20 || byte == 0x7f) result[i] = '?';
    // In UTF-8 these are control characters, too: U+0080 to U+009F.
    const auto next = static_cast<unsigned char>(i + 1 < result.size() ? result[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) result[i] = result[i + 1] = '?';
  }
  return result;
}

JobEnding read_job_ending(std::span<const std::byte> memory) {
  const FlightMemory* const flight = as_flight(memory);
  if (flight == nullptr) return {};
  const FlightEnd& end = flight->end;
  switch (static_cast<FlightEndState>(end.state.load(std::memory_order_acquire))) {
    case FlightEndState::consequence:
      return {.kind = JobEnding::Kind::consequence, .culprit = std::max(end.culprit.load(kRelaxed), kNobody)};
    case FlightEndState::local_failure: return {.kind = JobEnding::Kind::local_failure, .cause = text_in(end.text)};
    case FlightEndState::writing: return {.kind = JobEnding::Kind::local_failure};  // and died while writing
    case FlightEndState::none: break;
  }
  return {.in_job = flight->epoch.load(kRelaxed) != 0};
}

std::optional<FlightSnapshot> read_flight_snapshot(std::span<const std::byte> memory) {
  const FlightMemory* const flight = as_flight(memory);
  if (flight == nullptr) return std::nullopt;
  const Metrics& metrics = flight->metrics;
  FlightSnapshot facts;
  static_cast<FlightProgress&>(facts) = read_flight_progress(memory);
  facts.pid = flight->pid.load(std::memory_order_acquire);
  facts.rank = flight->rank.load(kRelaxed);
  facts.job_has_failed =
      flight->end.state.load(std::memory_order_acquire) != static_cast<std::int32_t>(FlightEndState::none);
  facts.counters.operations = metrics.operations.value() + metrics.direct_calls.value();
  facts.counters.bytes = metrics.bytes.value() + metrics.direct_bytes.value();
  facts.counters.locked_steps = metrics.locked_steps.value();
  facts.counters.rounds = metrics.rounds.value();
  facts.counters.lock_state = metrics.lock_state.value();
  facts.counters.exposed_time = Duration(static_cast<Duration::rep>(metrics.exposed_time.value()));
  facts.shards = shards_in(metrics);
  facts.awaited = number_from_one(metrics.worker.awaited);
  read_stall(flight->stall, facts);
  return facts;
}

FlightProgress read_flight_progress(std::span<const std::byte> memory) {
  const FlightMemory* const flight = as_flight(memory);
  if (flight == nullptr) return {};
  const bool has_come = flight->pid.load(std::memory_order_acquire) != 0;  // written after `initializing`
  const bool initializing = flight->initializing.load(kRelaxed) != 0;
  const std::int64_t epoch = flight->epoch.load(kRelaxed);
  return {.has_initialized = has_come && !initializing,
          .warned = flight->stall.stalled.load(kRelaxed) != 0,
          .epoch = epoch > 0 ? std::optional(time_of(epoch)) : std::nullopt,
          .initializing = epoch > 0 && initializing,
          .stall_time = std::max(Duration(flight->stall_time.load(kRelaxed)), Duration::zero()),
          .begun = flight->begun.load(kRelaxed),
          .kept_waiting = kept_waiting_since(flight->metrics),
          .waits_for_server = number_from_one(flight->metrics.worker.awaited) == kNobody
                                  ? std::nullopt
                                  : since_in(flight->metrics.worker.waiting_since)};
}

std::optional<TimePoint> oldest_under_way(std::span<const std::byte> memory) {
  const FlightMemory* const flight = as_flight(memory);
  std::optional<TimePoint> oldest;
  if (flight == nullptr) return oldest;
  const std::uint64_t used = std::min<std::uint64_t>(flight->begun.load(kRelaxed), kFlightRecords - 1) + 1;
  for (std::size_t slot = 0; slot < used; ++slot) {
    const auto state = static_cast<FlightState>(state_in(flight->records[slot].word.load(std::memory_order_acquire)));
    if (state != FlightState::submitted && state != FlightState::performing) continue;
    const auto operation = read_record(flight->records[slot]);
    if (!operation || !operation->under_way() || operation->collective == Collective::join) continue;
    if (!oldest || operation->submitted < *oldest) oldest = operation->submitted;
  }
  return oldest;
}

std::vector<RecordedOperation> read_flight_operations(std::span<const std::byte> memory) {
  std::vector<RecordedOperation> operations;
  const FlightMemory* const flight = as_flight(memory);
  if (flight == nullptr) return operations;
  for (std::size_t slot = 0; slot < kFlightRecords; ++slot) {
    auto operation = read_record(flight->records[slot]);
    if (operation && operation->number % kFlightRecords == slot) operations.push_back(std::move(*operation));
  }
  std::sort(operations.begin(), operations.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  return operations;
}

}  // namespace hvd

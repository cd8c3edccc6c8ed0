#include "launcher/standing.h"

#include <algorithm>
#include <map>

#include "core/net/byte_codec.h"
#include "core/tensor/shape.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMostOpen = 8;
constexpr std::size_t kMostSets = 64;
constexpr std::size_t kMostStack = 16 << 10;

std::string shape_of(const RecordedOperation& operation) {
  if (operation.tensors == 0) return "";
  if (operation.tensors > 1) {
    return std::to_string(operation.tensors) + (operation.tensors == 255 ? " or more" : "") + " tensors, " +
           std::to_string(operation.bytes) + " bytes";
  }
  return dtype_name(operation.dtype) + hvd::to_string(operation.shape);
}

StandingOperation to_standing(const RecordedOperation& operation, TimePoint now) {
  using State = StandingOperation::State;
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

// A job that fails ends all that is open at once, after which nothing is done: what had failed by itself earlier was
// followed by something that was done.
std::vector<const RecordedOperation*> open_ones(const std::vector<RecordedOperation>& operations) {
  TimePoint last_done = TimePoint::min();
  for (const RecordedOperation& operation : operations) {
    if (operation.state == FlightState::done) last_done = std::max(last_done, operation.ended);
  }
  std::vector<const RecordedOperation*> open;
  for (const RecordedOperation& operation : operations) {
    const bool given_up = operation.state == FlightState::failed && operation.ended >= last_done;
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

std::vector<StandingInSet> sets_in(const std::vector<RecordedOperation>& operations) {
  std::map<std::int32_t, StandingInSet> sets;
  for (const RecordedOperation& operation : operations) {
    if (sets.size() == kMostSets && !sets.contains(operation.process_set)) continue;
    StandingInSet& set = sets[operation.process_set];
    set.process_set = operation.process_set;
    set.submitted = std::max(set.submitted, operation.sequence);
    if (operation.state == FlightState::done) set.done = std::max(set.done, operation.sequence);
  }
  std::vector<StandingInSet> list;
  for (const auto& [number, set] : sets) list.push_back(set);
  return list;
}

void put(ByteWriter& writer, const StandingOperation& operation) {
  writer.put(static_cast<std::uint8_t>(operation.state));
  writer.put(operation.process_set);
  writer.put(operation.sequence);
  writer.put_string(operation.what);
  writer.put_string(operation.name);
  writer.put_string(operation.shape);
  writer.put(operation.age.count());
}

StandingOperation get_operation(ByteReader& reader) {
  const auto state = reader.get<std::uint8_t>();
  if (state > static_cast<std::uint8_t>(StandingOperation::State::given_up)) throw Internal("malformed standing");
  StandingOperation operation{
      .state = static_cast<StandingOperation::State>(state), .what = {}, .name = {}, .shape = {}};
  operation.process_set = reader.get<std::int32_t>();
  operation.sequence = reader.get<std::uint64_t>();
  operation.what = reader.get_string();
  operation.name = reader.get_string();
  operation.shape = reader.get_string();
  operation.age = Duration(reader.get<Duration::rep>());
  return operation;
}

void put(ByteWriter& writer, const std::optional<Duration>& duration) {
  writer.put(static_cast<std::uint8_t>(duration.has_value()));
  if (duration) writer.put(duration->count());
}

std::optional<Duration> get_duration(ByteReader& reader) {
  if (reader.get<std::uint8_t>() == 0) return std::nullopt;
  return Duration(reader.get<Duration::rep>());
}

void put(ByteWriter& writer, const PythonFrame& frame) {
  writer.put_string(frame.file);
  writer.put(static_cast<std::int32_t>(frame.line));
  writer.put_string(frame.function);
}

PythonFrame get_frame(ByteReader& reader) {
  PythonFrame frame;
  frame.file = reader.get_string();
  frame.line = reader.get<std::int32_t>();
  frame.function = reader.get_string();
  return frame;
}

// In the order of the struct.
constexpr std::uint64_t Standing::*kCounters[] = {&Standing::operations, &Standing::bytes, &Standing::locked_steps,
                                                  &Standing::rounds, &Standing::lock_state};

}  // namespace

Standing make_standing(const FlightFacts& facts, const std::vector<RecordedOperation>& operations,
                       const StackAnswer& stack, TimePoint now) {
  Standing standing;
  standing.rank = facts.rank;
  standing.pid = facts.pid;
  standing.operations = facts.operations;
  standing.bytes = facts.bytes;
  standing.locked_steps = facts.locked_steps;
  standing.rounds = facts.rounds;
  standing.lock_state = facts.lock_state;
  standing.exposed_time = facts.exposed_time;
  standing.in_job = facts.epoch.has_value();
  if (facts.epoch && facts.meeting) standing.meeting = std::max(now - *facts.epoch, Duration::zero());
  standing.patience = facts.patience;
  standing.since_progress = since_progress(operations, now);
  const auto open = open_ones(operations);
  for (const RecordedOperation* operation : open) {
    if (standing.open.size() < kMostOpen) standing.open.push_back(to_standing(*operation, now));
  }
  standing.more_open = static_cast<std::uint32_t>(open.size() - standing.open.size());
  standing.sets = sets_in(operations);
  standing.stall = facts.stall;
  standing.frame = frame_of_script(stack.text, stack.package);
  standing.stack = stack.text.substr(0, kMostStack);
  return standing;
}

std::string encode(const Standing& standing) {
  ByteWriter writer;
  writer.put(standing.rank);
  writer.put(standing.pid);
  writer.put(static_cast<std::uint8_t>(standing.stopped));
  for (const auto number : kCounters) writer.put(standing.*number);
  writer.put(standing.exposed_time.count());
  writer.put(static_cast<std::uint8_t>(standing.in_job));
  writer.put(static_cast<std::uint8_t>(standing.ended));
  put(writer, standing.meeting);
  writer.put(standing.patience.count());
  put(writer, standing.since_progress);
  writer.put(static_cast<std::uint32_t>(standing.open.size()));
  for (const StandingOperation& operation : standing.open) put(writer, operation);
  writer.put(standing.more_open);
  writer.put(static_cast<std::uint32_t>(standing.sets.size()));
  for (const StandingInSet& set : standing.sets) {
    writer.put(set.process_set);
    writer.put(set.submitted);
    writer.put(set.done);
  }
  writer.put_string(standing.stall);
  writer.put(static_cast<std::uint8_t>(standing.frame.has_value()));
  if (standing.frame) put(writer, *standing.frame);
  writer.put_string(standing.stack);
  const Bytes bytes = writer.take();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Standing decode_standing(std::string_view bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes)));
  Standing standing;
  standing.rank = reader.get<std::int32_t>();
  standing.pid = reader.get<std::int32_t>();
  standing.stopped = reader.get<std::uint8_t>() != 0;
  for (const auto number : kCounters) standing.*number = reader.get<std::uint64_t>();
  standing.exposed_time = Duration(reader.get<Duration::rep>());
  standing.in_job = reader.get<std::uint8_t>() != 0;
  standing.ended = reader.get<std::uint8_t>() != 0;
  standing.meeting = get_duration(reader);
  standing.patience = Duration(reader.get<Duration::rep>());
  standing.since_progress = get_duration(reader);
  for (std::uint32_t left = reader.get_count(33); left > 0; --left) standing.open.push_back(get_operation(reader));
  standing.more_open = reader.get<std::uint32_t>();
  for (std::uint32_t left = reader.get_count(20); left > 0; --left) {
    const auto process_set = reader.get<std::int32_t>();
    const auto submitted = reader.get<std::uint64_t>();
    standing.sets.push_back({process_set, submitted, reader.get<std::uint64_t>()});
  }
  standing.stall = reader.get_string();
  if (reader.get<std::uint8_t>() != 0) standing.frame = get_frame(reader);
  standing.stack = reader.get_string();
  reader.expect_end();
  return standing;
}

}  // namespace hvd::launcher

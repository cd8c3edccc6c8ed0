// Reads a flight recorder's memory into plain values. The memory belongs to another process, which may be writing, dead
// or corrupt: nothing in it is trusted, and invalid content is left out.
//
// Pure except for the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/flight/flight_layout.h"
#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"

namespace hvd {

struct RecordedOperation {
  std::uint64_t number = 0;    // among all operations of this rank
  std::uint64_t sequence = 0;  // among those of the process set
  std::int32_t process_set = 0;
  Collective collective = Collective::allreduce;
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;  // of the first tensor; at most four dimensions
  int tensors = 0;
  std::int64_t bytes = 0;
  FlightState state = FlightState::submitted;  // submitted, performing, done or failed
  StatusCode code = StatusCode::ok;
  TimePoint submitted, started, ended;  // as far as the state has advanced

  bool under_way() const { return state == FlightState::submitted || state == FlightState::performing; }
};

// A cheap check whether a rank makes progress: only a few words are read.
struct FlightProgress {
  bool has_initialized = false;      // it has called init, and left it when all ranks had come
  bool warned = false;               // the stall inspector has reported a missing operation
  std::optional<TimePoint> epoch{};  // since when it is in a job, init included; nothing: it is in none
  bool initializing = false;         // it waits in init for the other ranks
  Duration stall_time{};             // an operation or init that takes as long is stalled; zero: never
  std::uint64_t begun = 0;           // operations in this epoch
  // Of a parameter server: since when requests wait for a slower worker. Of a worker: since when it waits for a server.
  std::optional<TimePoint> kept_waiting{}, waits_for_server{};
};
// As of a rank that is in no job if it is not a flight recorder's memory.
FlightProgress read_flight_progress(std::span<const std::byte> memory);

// What a shard of a parameter server has done and holds; see ShardMetrics.
struct ShardFacts {
  std::int32_t number = 0;
  bool answers = false;
  std::uint64_t pushes = 0, pulls = 0, rows = 0, bytes = 0;
  std::uint64_t staleness_median = 0, staleness_worst = 0;
  std::uint64_t queue = 0, waiting = 0;
  std::int32_t slowest = kNobody;  // the worker that requests wait for
  bool operator==(const ShardFacts&) const = default;
};

// What a rank has done since init; see Metrics.
struct RankCounters {
  std::uint64_t operations = 0, bytes = 0, locked_steps = 0, rounds = 0;
  std::uint64_t lock_state = 0;  // the current one (docs/metrics.md)
  Duration exposed_time{};       // of completed waits
  bool operator==(const RankCounters&) const = default;
};

struct FlightSnapshot : FlightProgress {
  std::int32_t pid = 0;  // 0: the process has not called init
  std::int32_t rank = 0;
  std::string stall;            // the stall inspector's warning; empty: none, or the stall is over
  bool job_has_failed = false;  // for this rank
  RankCounters counters;
  std::vector<ShardFacts> shards;  // of a parameter server
  std::int32_t awaited = kNobody;  // the parameter server that this worker waits for
};

// Why the job has ended for a rank, as recorded by that rank.
struct JobEnding {
  enum class Kind : std::uint8_t {
    untold,         // no end recorded: the rank left in order, or died before, or was in no job
    local_failure,  // this rank was the first to fail, as far as it knows
    consequence,    // another one was
  };
  Kind kind = Kind::untold;
  int culprit = kNobody;  // of a consequence: the rank that caused it; kNobody: unknown
  std::string cause{};    // of a failure: the text after the rank's name ("raised ValueError: ...")
  bool in_job = false;    // untold: it had not left the job, and recorded no end of it
  bool operator==(const JobEnding&) const = default;
};
JobEnding read_job_ending(std::span<const std::byte> memory);

// Nothing if it is not a flight recorder's memory, or has another version.
std::optional<FlightSnapshot> read_flight_snapshot(std::span<const std::byte> memory);
// When the oldest operation in progress was submitted; nothing if none is. Joins wait for as long as other ranks have
// work, and do not count. Reads all records.
std::optional<TimePoint> oldest_under_way(std::span<const std::byte> memory);
// Oldest first. Requires a flight recorder's memory.
std::vector<RecordedOperation> read_flight_operations(std::span<const std::byte> memory);

// Replaces characters that cannot be printed on a terminal by '?'.
std::string printable(std::string_view text);

}  // namespace hvd

// What a flight recorder's memory says, as plain values. The memory is that of another process, which may be writing,
// dead, or mad: nothing in it is trusted, and what makes no sense is left out.
//
// Pure but for the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/collective/collective.h"
#include "core/flight/flight_layout.h"
#include "core/tensor/dtype.h"

namespace hvd {

struct RecordedOperation {
  std::uint64_t number = 0;    // among all of this rank
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
  TimePoint submitted, started, ended;  // as far as it has come

  bool under_way() const { return state == FlightState::submitted || state == FlightState::performing; }
};

struct FlightSnapshot {
  std::int32_t pid = 0;  // 0: the process has not come to init
  std::int32_t rank = 0;
  std::optional<TimePoint> epoch;  // since when it is in a job, init included; nothing: it is in none
  bool initializing = false;       // it waits in init for the others
  Duration stall_time{};           // what takes as long, an operation or init, is stalled; zero: nothing
  std::string stall;               // the stall inspector's warning; empty: none, or it is over
  TimePoint stalled_since;
  // Metrics, as docs/metrics.md has them.
  std::uint64_t operations = 0, bytes = 0, locked_steps = 0, rounds = 0;
  std::uint64_t lock_state = 0;
  Duration exposed_time{};
};

// Why the job has ended for a rank, as that rank saw it.
struct JobEnding {
  enum class Kind : std::uint8_t {
    untold,         // it has not: the rank left in order, or without a word, or was in no job
    local_failure,  // this rank was the first to fail, as far as it knows
    consequence,    // another one was
  };
  Kind kind = Kind::untold;
  int culprit = kNobody;  // of a consequence: a rank, of which nothing else is known; kNobody: it could not say
  std::string cause{};    // of a failure: what follows the rank's name ("raised ValueError: ...")
  bool in_job = false;    // untold: it had not left the job, and nobody had ended that
  bool operator==(const JobEnding&) const = default;
};
JobEnding read_job_ending(std::span<const std::byte> memory);

// Nothing if it is not such memory, or of another version.
std::optional<FlightSnapshot> read_flight_snapshot(std::span<const std::byte> memory);
// What tells cheaply whether a rank goes on: a few words are read.
struct FlightProgress {
  bool has_initialized = false;      // it has been in init, and left it when all ranks were there
  bool warned = false;               // by the stall inspector, of something that has not come
  std::optional<TimePoint> epoch{};  // as in FlightSnapshot, like the next two
  bool initializing = false;
  Duration stall_time{};
  std::uint64_t begun = 0;  // operations in this epoch
};
// As if it were in no job if it is not such memory.
FlightProgress read_flight_progress(std::span<const std::byte> memory);
// When the oldest operation that is under way was submitted; nothing: there is none. Joins wait for as long as others
// have work, and do not count. Looks at all records.
std::optional<TimePoint> oldest_under_way(std::span<const std::byte> memory);
// Oldest first. Of such memory only.
std::vector<RecordedOperation> read_flight_operations(std::span<const std::byte> memory);

// As it may be shown on a terminal: what is not printable becomes '?'.
std::string printable(std::string_view text);

}  // namespace hvd

// How the flight recorder's memory looks: a header, and a ring of the last operations. A rank writes it
// (flight_recorder.h), hvdrun reads it (flight_reader.h), also when the rank is dead: it is a memfd that hvdrun makes
// and the rank inherits.
//
// Plain numbers and characters, no pointers; every word that changes is an atomic without a lock, which means the same
// in every process that maps it. The two programs agree on the layout by kFlightLayout, which changes with it.
//
// A record's `word` says what the rest is: the operation's number since init (from 1; it tells what lies in a slot from
// what lay there before), how it ended, and its state. While the rest changes the state is `writing`, and a reader that
// finds another number after reading than before has read nothing: so a record is right or recognised as torn, whoever
// dies when.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/metrics.h"
#include "core/base/status.h"

namespace hvd {

inline constexpr std::uint64_t kFlightMagic = 0x74'68'67'6c'66'64'76'68;  // "hvdflght"
inline constexpr std::uint32_t kFlightVersion = 3;
inline constexpr std::size_t kFlightRecords = 4096;  // a power of two

enum class FlightState : std::uint8_t {
  empty,
  writing,
  submitted,   // waits for the ranks to agree, or for what comes first
  performing,  // all ranks have it, or this one asks them in doing it
  done,
  failed,
};

// What an operation is; made once, also where it comes again and again.
struct FlightOperation {
  std::int32_t process_set = 0;
  std::uint8_t collective = 0;
  std::uint8_t dtype = 0;       // of the first tensor
  std::uint8_t dimensions = 0;  // that it has; the first four are below
  std::uint8_t tensors = 0;     // at most 255
  std::array<std::uint32_t, 4> shape{};
  std::int64_t bytes = 0;       // of all
  std::array<char, 56> name{};  // shortened in the middle; ends with 0
};

inline constexpr std::size_t kFlightWords = sizeof(FlightOperation) / 8;
static_assert(sizeof(FlightOperation) % 8 == 0 && std::is_trivially_copyable_v<FlightOperation>);
// The same as it is copied, a word at a time.
using FlightWords = std::array<std::uint64_t, kFlightWords>;

struct alignas(64) FlightRecord {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> sequence;                  // among this rank's operations of the process set, from 1
  std::atomic<std::int64_t> submitted, started, ended;  // nanoseconds of CLOCK_MONOTONIC, to a few milliseconds
  std::array<std::atomic<std::uint64_t>, kFlightWords> operation;
};
static_assert(sizeof(FlightRecord) == 128);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);

constexpr std::uint64_t flight_word(std::uint64_t number, FlightState state, StatusCode code = StatusCode::ok) {
  return number << 16 | static_cast<std::uint64_t>(code) << 8 | static_cast<std::uint64_t>(state);
}
constexpr std::uint64_t number_in(std::uint64_t word) { return word >> 16; }
constexpr std::uint8_t code_in(std::uint64_t word) { return static_cast<std::uint8_t>(word >> 8); }
constexpr std::uint8_t state_in(std::uint64_t word) { return static_cast<std::uint8_t>(word); }

// The newest warning that ranks are missing: a text as the stall inspector has written it, and since when.
struct FlightStall {
  std::atomic<std::uint64_t> changes;  // odd while the rest changes
  std::atomic<std::int64_t> since;     // as above; 0: nothing is stalled
  std::array<std::atomic<std::uint64_t>, 64> text;
};

enum class FlightEndState : std::int32_t {
  none,  // the job goes on, or this rank has left it in order
  writing,
  local_failure,  // this rank was the first to fail, as far as it knows; `text` says how
  consequence,    // of what `culprit` did
};

// Why the job has ended for this rank, so that who starts ranks can tell a cause from its consequences.
struct FlightEnd {
  std::atomic<std::int32_t> state;    // FlightEndState
  std::atomic<std::int32_t> culprit;  // a rank, kNobody: not known
  std::array<std::atomic<std::uint64_t>, 64> text;
};

struct FlightMemory {
  // By who makes the memory.
  std::uint64_t magic;
  std::uint64_t layout;
  // By the rank.
  std::atomic<std::int32_t> pid;  // 0: it has not come to init
  std::atomic<std::int32_t> rank;
  std::atomic<std::int64_t> stall_time;  // what takes as long, an operation or init, is stalled; 0: nothing
  std::atomic<std::int64_t> epoch;  // since when it is in a job, init included; 0: it is in none, or in none any more
  std::atomic<std::int32_t> initializing;  // 1: it waits in init for the others
  FlightStall stall;
  FlightEnd end;
  alignas(64) Metrics metrics;
  alignas(64) std::atomic<std::uint64_t> begun;  // operations since init
  std::array<FlightRecord, kFlightRecords> records;
};
static_assert(std::is_standard_layout_v<FlightMemory>);

inline constexpr std::uint64_t kFlightLayout = std::uint64_t{kFlightVersion} << 32 | sizeof(FlightMemory);

}  // namespace hvd

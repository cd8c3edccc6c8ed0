// The layout of the flight recorder's memory: a header, and a ring of the last operations. A rank writes it
// (flight_recorder.h) and hvdrun reads it (flight_reader.h), also after the rank has died: it is a memfd that hvdrun
// creates and the rank inherits.
//
// Plain numbers and characters, no pointers; every word that changes is a lock-free atomic, which means the same in
// every process that maps it. The two programs agree on the layout by kFlightLayout, which changes with it.
//
// A record's `word` describes the rest: the operation's number since init (from 1; it distinguishes a slot's content
// from earlier ones), how it ended, and its state. While the rest changes the state is `writing`, and a reader that
// finds another number after reading than before discards what it has read: so a record is right or recognised as torn,
// whichever process dies when.
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
inline constexpr std::uint32_t kFlightVersion = 4;
inline constexpr std::size_t kFlightRecords = 4096;  // a power of two

enum class FlightState : std::uint8_t {
  empty,
  writing,
  submitted,   // waits for the ranks to agree, or for earlier operations
  performing,  // all ranks have it, or this one asks them by performing it
  done,
  failed,
};

// The description of an operation; computed once, also for repeated operations.
struct FlightOperation {
  std::int32_t process_set = 0;
  std::uint8_t collective = 0;
  std::uint8_t dtype = 0;       // of the first tensor
  std::uint8_t dimensions = 0;  // of that tensor; the sizes of the first four are below
  std::uint8_t tensors = 0;     // at most 255
  std::array<std::uint32_t, 4> shape{};
  std::int64_t bytes = 0;       // of all tensors
  std::array<char, 56> name{};  // shortened in the middle; ends with 0
};

inline constexpr std::size_t kFlightWords = sizeof(FlightOperation) / 8;
static_assert(sizeof(FlightOperation) % 8 == 0 && std::is_trivially_copyable_v<FlightOperation>);
// The same in the form in which it is copied, word by word.
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

// The newest warning that ranks are missing: the stall inspector's text.
struct FlightStall {
  std::atomic<std::uint64_t> changes;  // odd while the rest changes
  std::atomic<std::int64_t> stalled;   // 0: nothing is, and the text is void
  std::array<std::atomic<std::uint64_t>, 64> text;
};

enum class FlightEndState : std::int32_t {
  none,  // the job goes on, or this rank has left it in order
  writing,
  local_failure,  // this rank was the first to fail, as far as it knows; `text` says how
  consequence,    // of the failure of `culprit`
};

// Why the job has ended for this rank, so that the launcher can distinguish the cause from its consequences.
struct FlightEnd {
  std::atomic<std::int32_t> state;    // FlightEndState
  std::atomic<std::int32_t> culprit;  // a rank, or kNobody: unknown
  std::array<std::atomic<std::uint64_t>, 64> text;
};

struct FlightMemory {
  // Written by the process that creates the memory.
  std::uint64_t magic;
  std::uint64_t layout;
  // Written by the rank.
  std::atomic<std::int32_t> pid;  // 0: it has not called init
  std::atomic<std::int32_t> rank;
  std::atomic<std::int64_t> stall_time;    // an operation or init that takes as long is stalled; 0: never
  std::atomic<std::int64_t> epoch;         // since when it is in a job, init included; 0: it is in none
  std::atomic<std::int32_t> initializing;  // 1: it waits in init for the other ranks
  FlightStall stall;
  FlightEnd end;
  alignas(64) Metrics metrics;
  alignas(64) std::atomic<std::uint64_t> begun;  // operations since init
  std::array<FlightRecord, kFlightRecords> records;
};
static_assert(std::is_standard_layout_v<FlightMemory>);

inline constexpr std::uint64_t kFlightLayout = std::uint64_t{kFlightVersion} << 32 | sizeof(FlightMemory);

}  // namespace hvd

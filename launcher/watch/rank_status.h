// What a rank is doing: a small value, made where the rank runs from its flight recorder, sent to hvdrun as bytes, and
// told to people there (stragglers.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/flight/flight_reader.h"
#include "launcher/watch/python_stack.h"

namespace hvd::launcher {

struct OperationStatus {
  enum class State : std::uint8_t {
    waits,     // submitted
    performs,  // all ranks have it, or this one asks them
    given_up,  // when the job failed
  };
  State state = State::waits;
  std::int32_t process_set = 0;
  std::uint64_t sequence = 0;  // among this rank's operations in the set
  std::string what;            // "allreduce"
  std::string name;
  std::string shape;  // "float32[1024, 512]", "3 tensors, 48 bytes"
  Duration age{};     // since it was submitted; given up: until then
  bool operator==(const OperationStatus&) const = default;
};

struct ProcessSetStatus {
  std::int32_t process_set = 0;
  std::uint64_t submitted = 0, done = 0;  // sequences of the last
  bool operator==(const ProcessSetStatus&) const = default;
};

struct RankStatus {
  std::int32_t rank = 0;
  std::int32_t pid = 0;  // as the process sees it; 0: it has not come to init
  bool stopped = false;  // as by SIGSTOP
  // Numbers since init that only grow; lock_state is that of now (docs/metrics.md).
  std::uint64_t operations = 0, bytes = 0, locked_steps = 0, rounds = 0;
  std::uint64_t lock_state = 0;
  Duration exposed_time{};                 // of finished waits
  bool in_job = false;                     // it has come to init, and has not left
  bool ended = false;                      // the process
  std::optional<Duration> initializing;    // how long it has waited for the others in init; nothing: it does not
  Duration stall_time{};                   // what takes as long counts as stalled; zero: nothing
  std::optional<Duration> since_progress;  // since an operation began or ended; none did yet
  std::vector<OperationStatus> open;       // the oldest
  std::uint32_t more_open = 0;             // beside them
  std::vector<ProcessSetStatus> sets;      // of which it has records
  std::string stall;                       // the stall inspector's warning; empty: all is well
  std::optional<PythonFrame> frame;        // where the script is
  std::string stack;                       // of all Python threads; empty: not asked for, or there was no answer
  bool operator==(const RankStatus&) const = default;
};

// What the process has answered when it was asked for its stacks.
struct StackAnswer {
  std::string text;
  std::string package;  // hvd's folder there
};

RankStatus make_rank_status(const FlightSnapshot& facts, const std::vector<RecordedOperation>& operations,
                            const StackAnswer& stack, TimePoint now);

std::string encode(const RankStatus& status);
// Throws Internal: malformed.
RankStatus decode_rank_status(std::string_view bytes);

}  // namespace hvd::launcher

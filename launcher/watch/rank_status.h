// What a rank is doing: a small value, built on the rank's host from its flight recorder, sent to hvdrun, and reported
// to the user there, with the stragglers of the job. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/flight/flight_reader.h"

namespace hvd::launcher {

// A line of the stack traces that Python's faulthandler writes of a process's threads.
struct PythonFrame {
  std::string file;  // as Python reports it
  int line = 0;
  std::string function;
  bool operator==(const PythonFrame&) const = default;
};

// "train.py:48 in load_batch"
std::string to_string(const PythonFrame& frame);

// Where the user's script is: in the thread that handled the signal, usually the main thread, the innermost frame that
// is neither in `package` (hvd's folder) nor in a library's folder; if there is none, the innermost outside `package`.
std::optional<PythonFrame> frame_of_script(std::string_view stack, std::string_view package);

struct OperationStatus {
  enum class State : std::uint8_t {
    waits,     // submitted
    performs,  // all ranks have submitted it, or this rank asks them for its stage
    given_up,  // not completed when the job failed
  };
  State state = State::waits;
  std::int32_t process_set = 0;
  std::uint64_t sequence = 0;  // among this rank's operations in the set
  std::string what;            // "allreduce"
  std::string name;
  std::string shape;  // "float32[1024, 512]", "3 tensors, 48 bytes"
  Duration age{};     // since submission; for given_up, from submission until then
  bool operator==(const OperationStatus&) const = default;
};

struct ProcessSetStatus {
  std::int32_t process_set = 0;
  std::uint64_t submitted = 0, done = 0;  // sequence numbers of the last ones
  bool operator==(const ProcessSetStatus&) const = default;
};

struct RankStatus {
  std::int32_t rank = 0;
  std::int32_t pid = 0;  // in the process's own pid namespace; 0: it has not called init yet
  bool stopped = false;  // as by SIGSTOP
  RankCounters counters;
  std::vector<ShardFacts> shards;  // of a parameter server
  std::int32_t awaited = kNobody;  // the parameter server that it waits for
  // How long it has waited for that server; of a server: how long requests have waited for a slower worker.
  Duration waited{};
  bool in_job = false;                     // it has entered init, and has not left the job
  bool ended = false;                      // the process has ended
  std::optional<Duration> initializing;    // how long it has waited for other ranks in init; empty: it is not in init
  Duration stall_time{};                   // operations that take this long count as stalled; zero: none do
  std::optional<Duration> since_progress;  // since an operation began or ended; empty: none has yet
  std::vector<OperationStatus> open;       // the oldest open operations
  std::uint32_t more_open = 0;             // the number of other open operations
  std::vector<ProcessSetStatus> sets;      // of which it has records
  std::string stall;                       // the stall inspector's warning; empty: none
  std::optional<PythonFrame> frame;        // where the script is
  std::string stack;                       // of all Python threads; empty: not requested, or no answer
  bool operator==(const RankStatus&) const = default;
};

// Where a process of an elastic job takes part.
struct EpochRank {
  int epoch = 0;
  int rank = 0;
};

struct StatusOfRank {
  int rank = 0;  // in an elastic job: the number of the process
  std::string host;
  std::optional<RankStatus> status;       // empty: no answer
  std::optional<EpochRank> epoch_rank{};  // empty: the job is not elastic, or the process is not in its epoch
  int server = -1;                        // its number among the parameter servers; -1: it is a rank
};

// The answer of a process to a request for its stacks.
struct StackAnswer {
  std::string text;
  std::string package;  // hvd's folder there
};

RankStatus make_rank_status(const FlightSnapshot& facts, const std::vector<RecordedOperation>& operations,
                            const StackAnswer& stack, TimePoint now);

// Formats the status of all ranks for programs such as `hvd top`: a line of names, then a line per rank, with fields
// separated by tabs. A rank that has not answered has only the first two fields, and "-" for the others. In an elastic
// job there are two more, `epoch` and `epoch_rank`, with "-" for processes that are not in the epoch. Parameter servers
// have lines in a table of their own, after an empty line: one for each shard.
std::string status_table(const std::vector<StatusOfRank>& processes);

// "rank 3 (host h2) has not submitted allreduce 'layer3.weight' (operation 118 of set 0), for which ranks 0-2 have
// waited 12.4 s; it is at train.py:48 in load_batch". Empty if no rank has waited for `stall_time` (in init: for
// 0.5 s), or all ranks do the same. Of parameter servers: "rank 3 (host h2) has kept ranks 0-2 waiting for
// 12.4 s at server 1 (host h1), because its clock is behind; it is at train.py:48 in load_batch", "server 1 (host h2)
// is stopped, as by SIGSTOP or Ctrl-Z; rank 0 has waited 12.4 s for it". Where the ranks' records do not say who is
// missing: what the stall inspector says.
std::string find_stragglers(const std::vector<StatusOfRank>& processes, Duration stall_time);

// The part of that sentence that stays while the stall lasts: without the time waited and the place in the script.
std::string stable_part_of(const std::string& sentence);

// The shortest wait that counts as a stall: a moment if the stall inspector has warned, else the ranks' stall time.
Duration time_to_count_as_stalled(const std::vector<StatusOfRank>& ranks);

// Lines for each rank: what it is doing, its open operations, and its Python stacks.
std::string stacks_text(const std::vector<StatusOfRank>& ranks);

}  // namespace hvd::launcher

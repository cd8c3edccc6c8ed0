// Every knob, once: one const struct, filled from one table (config.cc) of name, default and documentation.
//
// Read once, at init, from a copy of the environment. docs/environment.md is generated from the table.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"

namespace hvd {

using Environment = std::map<std::string, std::string>;

// A copy of this process's environment.
Environment process_environment();

// The divisor of an average while some ranks have joined.
enum class JoinDivisor {
  all,           // the number of all ranks
  contributing,  // of those that have not joined
};

// What goes on without ranks that have joined.
enum class JoinScope {
  all,        // every collective that can
  allreduce,  // allreduce and barrier; the others fail, as Horovod's do
};

// What moves the data of tensors in ordinary memory.
enum class CpuBackend {
  automatic,
  host,          // shared memory and TCP
  mpi,           // MPI's collectives
  mpi_messages,  // shared memory and MPI's messages
};

// As many bytes as the data plane finds worth it.
inline constexpr std::int64_t kAutomaticThreshold = -1;

struct Config {
  // How the process was started by hvdrun; rendezvous/launch_environment.h knows the other launchers.
  int rank = 0;
  int size = 1;
  std::string store;     // host:port of the job's store; empty: none, a job of one
  std::string job_key;   // 64 hexadecimal digits
  std::string host_id;   // empty: found out
  std::string hostname;  // empty: gethostname()
  std::string address;   // numeric, under which other hosts reach this one; empty: found out
  Duration start_timeout{};
  Duration lease{};
  int flight_recorder = -1;  // a descriptor; -1: none

  LogLevel log_level = LogLevel::warning;
  std::string timeline;  // a file; empty or DYNAMIC: none at start
  bool timeline_marks_rounds = false;

  JoinDivisor join_divisor = JoinDivisor::all;
  JoinScope join_scope = JoinScope::all;
  std::int64_t fusion_threshold_bytes = 0;
  Duration coalescing{};  // how long an answer may wait for more
  bool autotune = false;
  std::string autotune_log;  // a file; empty: none
  int autotune_warmup_samples = 0;
  int autotune_steps_per_sample = 1;
  int autotune_max_samples = 0;
  int cache_capacity = 0;
  bool schedule_lock = true;
  bool stall_check = true;
  Duration stall_warning{};
  Duration stall_limit{};  // zero: never give up
  Duration collective_timeout{};

  CpuBackend cpu_backend = CpuBackend::automatic;
  std::string mpi_library;  // a path; empty: found out
  std::string plugins;      // paths, separated by ':'

  bool deterministic = true;
  std::string algorithm;     // as ops/choice reads it; empty: chosen by measurement
  int sockets_per_peer = 0;  // 0: as the network's speed suggests
  bool shared_memory = true;
  std::int64_t chunk_bytes = 0;
  std::string instruction_set;         // as ops/reduction names it: which there are depends on the processor
  std::int64_t arena_limit_bytes = 0;  // of one rank

  std::string cuda_library;  // empty: the system's
  std::string nccl_library;  // empty: the framework's or the system's
  bool gpu_through_host = false;

  // What ranks do not submit, or do not answer, is given up after stall_limit.
  bool gives_up_stalls() const { return stall_check && stall_limit > Duration::zero(); }
  // How long a live peer may be silent inside an operation: collective_timeout or, where it is shorter, what stalls may
  // take. Ranks that may only be waiting for others which wait themselves have a higher level, and give up later, so
  // that it is the stopped rank that is named.
  Duration silence_limit(int level = 0) const;

  // What the environment has, under either name, as HVD_X: chosen by someone, even where it is the default's value.
  std::set<std::string, std::less<>> given;
};

struct ConfigResult {
  Config config;
  std::vector<std::string> warnings;  // unknown HVD_* names with the nearest known one
};

// Pure. HVD_X wins over its HOROVOD_X alias. Throws InvalidArgument that names the variable, its value and what is
// allowed.
ConfigResult read_config(const Environment& environment);

// What all ranks of a job must have alike, because the shape of what they do together follows from it: "NAME=value" of
// each such variable.
std::vector<std::string> shared_settings(const Config& config);

// The table as Markdown.
std::string environment_documentation();

}  // namespace hvd

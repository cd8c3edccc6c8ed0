// The configuration: one const struct with a group per subject, filled from one table (config.cc) of names, defaults
// and documentation.
//
// Read once, at init, from a copy of the environment. docs/environment.md is generated from the table.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/process.h"

namespace hvd {

// A copy of this process's environment.
Environment process_environment();

// The divisor of an average while some ranks have joined.
enum class JoinDivisor {
  all,           // the number of all ranks
  contributing,  // of those that have not joined
};

// Which collectives go on without ranks that have joined.
enum class JoinScope {
  all,        // every collective that can
  allreduce,  // allreduce and barrier; the others fail, as Horovod's do
};

// What transmits tensors in CPU memory.
enum class CpuBackend {
  automatic,
  host,          // shared memory and TCP
  mpi,           // MPI's collectives
  mpi_messages,  // shared memory and MPI's messages
};

// The data plane chooses the threshold.
inline constexpr std::int64_t kAutomaticThreshold = -1;

struct Config {
  // Set by hvdrun; bootstrap/launch_environment.h reads the variables of the other launchers.
  struct Job {
    int rank = 0;
    int size = 1;
    int process = -1;      // of an elastic job; -1: the job is not elastic
    int servers = 0;       // parameter servers of the job, beside its ranks
    int server = -1;       // this process's number among them; -1: it is a rank
    std::string store;     // host:port of the job's store; empty: none, rank 0 of 1
    std::string key;       // 64 hexadecimal digits
    std::string host_id;   // empty: detected
    std::string hostname;  // empty: gethostname()
    std::string address;   // numeric, at which other hosts reach this one; empty: detected
  };

  struct Timeouts {
    Duration start{};
    Duration lease{};
    bool stall_check = true;
    Duration stall_warning{};
    Duration stall_limit{};  // zero: never give up
    Duration collective{};

    // Whether operations that ranks do not submit, or do not answer, are given up after stall_limit.
    bool gives_up_stalls() const;
    // How long a live peer may be silent inside an operation: `collective`, or the stall limit if that is shorter.
    // Ranks that may only be waiting for ranks that wait themselves have a higher level and give up later, so that the
    // error names the stopped rank.
    Duration silence_limit(int level = 0) const;
  };

  struct Diagnosis {
    LogLevel log_level = LogLevel::warning;
    std::string timeline;  // a file; empty or DYNAMIC: none at start
    bool timeline_marks_rounds = false;
    int flight_recorder = -1;  // a descriptor that hvdrun has set; -1: none
  };

  // When operations are performed, and with which others.
  struct Negotiation {
    JoinDivisor join_divisor = JoinDivisor::all;
    JoinScope join_scope = JoinScope::all;
    std::int64_t fusion_threshold_bytes = 0;
    Duration coalescing{};  // how long a response may wait for more operations
    int cache_capacity = 0;
    bool schedule_lock = true;
  };

  struct Autotune {
    bool enabled = false;
    std::string log;  // a file; empty: none
    int warmup_samples = 0;
    int steps_per_sample = 1;
    int max_samples = 0;
  };

  // How tensors in CPU memory are transmitted.
  struct DataPlane {
    CpuBackend cpu_backend = CpuBackend::automatic;
    std::string mpi_library;  // a path; empty: detected
    std::string plugins;      // paths, separated by ':'
    bool deterministic = true;
    std::string algorithm;           // as parsed by ops/choice; empty: chosen by measurement
    int sockets_per_peer = 0;        // on each network; 0: chosen by the network's speed
    std::string network_interfaces;  // names or networks, separated by ','; empty: that of the rank's address
    bool shared_memory = true;
    std::int64_t chunk_bytes = 0;
    std::string instruction_set;         // as named by ops/reduction; the choices depend on the processor
    std::int64_t arena_limit_bytes = 0;  // of one rank
  };

  struct Gpu {
    std::string cuda_library;  // empty: the system's
    std::string nccl_library;  // empty: the framework's or the system's
    bool through_host = false;
  };

  // What parameter servers do with their rows.
  struct Servers {
    int copies = 1;                 // of each shard: 1 or 2
    int parts = 1;                  // shards for each server
    std::int64_t memory_bytes = 0;  // of one server; 0: no limit
    std::string snapshot;           // a folder; empty: none
    Duration snapshot_interval{};
  };

  Job job;
  Servers servers;
  Timeouts timeouts;
  Diagnosis diagnosis;
  Negotiation negotiation;
  Autotune autotune;
  DataPlane data_plane;
  Gpu gpu;
  // The HVD_X names of variables set in the environment, under either name, even if set to the default value.
  std::set<std::string, std::less<>> given;
};

struct ConfigResult {
  Config config;
  std::vector<std::string> warnings;  // unknown HVD_* names with the nearest known one
};

// The settings that may change while a job runs without changing any result's bits.
struct Knobs {
  std::int64_t fusion_threshold_bytes = 0;
  std::int64_t coalescing_us = 0;  // microseconds for which an answer may wait for more tensors
  std::int64_t chunk_bytes = 0;

  friend bool operator==(const Knobs&, const Knobs&) = default;
};

// As configured, before anything is tuned.
Knobs knobs_of(const Config& config);

// Pure. HVD_X takes precedence over its alias HOROVOD_X. Throws InvalidArgument that names the variable, its value and
// the allowed values.
ConfigResult read_config(const Environment& environment);

// The settings that must be equal on all ranks of a job, because the ranks' common protocol depends on them:
// "NAME=value" of each such variable.
std::vector<std::string> shared_settings(const Config& config);

// The table as Markdown.
std::string environment_documentation();

}  // namespace hvd

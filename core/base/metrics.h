// The metrics of one runtime: counters, which only grow, and current values, each updated where its event happens. Read
// by any thread.
//
// Owned by the runtime and by handles that outlive it. Counting is a relaxed addition: each number is exact, and
// together they are from about the same moment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/base/clock.h"

namespace hvd {

class Counter {
 public:
  void add(std::uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  void add(Duration time) { add(static_cast<std::uint64_t>(time.count())); }
  // For a counter that only one thread at a time adds to: an atomic addition takes 5 ns, a thirtieth of the smallest
  // call.
  void add_alone(std::uint64_t count = 1) { set(value() + count); }
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }  // of current values
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// A process as a worker of parameter servers.
struct WorkerMetrics {
  Counter servers;  // that it is connected to
  Counter pushes, pulls;
  Counter rows;           // in them
  Counter wait_time;      // of threads that waited for servers
  Counter awaited;        // the server that it waits for now, from 1; 0: none
  Counter waiting_since;  // nanoseconds of CLOCK_MONOTONIC
};

// A shard of a parameter server: one of its own, one that has moved there, or a copy of another server's. Written a few
// times a second.
struct ShardMetrics {
  Counter number;   // of the shard, from 1; 0: there is none
  Counter answers;  // 1: its server answers the workers, 0: it has the copy
  Counter pushes, pulls, rows, bytes;
  Counter staleness_median, staleness_worst;  // in updates of the table; of the stalest table
  Counter queue;                              // bytes of requests that have come and are not answered
  Counter waiting;                            // requests that wait for a slower worker
  Counter waiting_since;                      // of the one that has waited longest; nanoseconds of CLOCK_MONOTONIC
  Counter slowest;                            // the worker that they wait for, from 1; 0: none
};

inline constexpr std::size_t kMaxShards = 8;  // of a server; further ones, which have moved there, are not shown

struct Metrics {
  // the control plane
  Counter control_messages;  // sent by this rank
  Counter control_bytes;     // sent, without frames
  Counter rounds;            // messages of the coordinator that this rank has performed
  Counter cache_hits;        // submissions announced as one bit
  Counter cache_misses;      // submissions announced as a whole request

  // the schedule lock (core/control/schedule/schedule_lock.h)
  Counter lock_state;
  Counter locked_steps;           // complete steps of schedules so far
  Counter locked_buckets;         // performed without negotiation
  std::array<Counter, 6> breaks;  // by ScheduleLock::Cause, as seen by this rank

  // the data plane
  Counter operations;  // submissions that have ended, successfully or not
  Counter buckets;     // calls of a backend
  Counter bytes;       // of the tensors in these calls, as counted on this rank

  // Of the set of all ranks, performed as prepared for a locked schedule: one operation and one locked bucket each.
  Counter direct_calls;
  Counter direct_bytes;

  // time
  Counter collective_time;     // in backends
  Counter collective_cpu;      // CPU time of the threads in backends, without direct calls; sampled and scaled
  Counter communication_time;  // with an operation in flight on this rank, finished intervals
  Counter exposed_time;        // of threads that waited for operations

  // parameter servers
  WorkerMetrics worker;
  std::array<ShardMetrics, kMaxShards> shards;
};

struct NamedMetric {
  const char* name;
  double value;  // counts, or seconds
};

// All metrics for people and programs, in a fixed order, and the value derived from them:
//   overlap = 1 - exposed_seconds / communication_seconds: the share of the communication that the program did not wait
//   for; 1 if there was none, at least 0.
// Those of parameter servers are there in a process that is connected to some, or has shards of their tables: the sums
// over its shards, and of staleness the highest.
std::vector<NamedMetric> list(const Metrics& metrics);

}  // namespace hvd

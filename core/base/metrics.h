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
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }  // of current values
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

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

  Counter direct_calls;  // performed as prepared for a locked schedule: one operation and one bucket each
  Counter direct_bytes;

  // time
  Counter collective_time;     // in backends
  Counter collective_cpu;      // CPU time of the threads in backends, without direct calls; sampled and scaled
  Counter communication_time;  // with an operation in flight on this rank, finished intervals
  Counter exposed_time;        // of threads that waited for operations
};

struct NamedMetric {
  const char* name;
  double value;  // counts, or seconds
};

// All metrics for people and programs, in a fixed order, and the value derived from them:
//   overlap = 1 - exposed_seconds / communication_seconds: the share of the communication that the program did not wait
//   for; 1 if there was none, at least 0.
std::vector<NamedMetric> list(const Metrics& metrics);

}  // namespace hvd

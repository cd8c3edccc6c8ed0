// What has happened so far in one runtime: numbers that only grow, each counted where it happens, read by any thread.
//
// Owned by the runtime, and kept by handles that outlive it. Counting is a relaxed addition: the numbers are each
// right, and together those of about one moment.
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

  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// What is now, and not how often it was.
class Gauge {
 public:
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct Metrics {
  // the control plane
  Counter control_messages;  // sent by this rank
  Counter control_bytes;     // of them, without frames
  Counter rounds;            // messages of the coordinator that this rank has carried out
  Counter cache_hits;        // submissions announced as a bit
  Counter cache_misses;      // submissions announced as a whole request

  // the schedule lock (core/negotiation/schedule_lock.h)
  Gauge lock_state;
  Gauge locked_steps;             // whole rounds of schedules so far
  Counter locked_buckets;         // performed without negotiation
  std::array<Counter, 6> breaks;  // by ScheduleLock::Cause, as seen by this rank

  // the data plane
  Counter operations;  // submissions that have ended, well or badly
  Counter buckets;     // calls of a backend
  Counter bytes;       // of the tensors in them, as the call counts them on this rank

  Counter direct_calls;  // performed as prepared for a locked schedule: an operation and a bucket each
  Counter direct_bytes;

  // time
  Counter collective_time;     // in backends
  Counter collective_cpu;      // of the threads in them, direct calls left out: of one call in so many, for all
  Counter communication_time;  // with an operation under way on this rank, finished intervals
  Counter exposed_time;        // of threads that waited for operations
};

struct NamedMetric {
  const char* name;
  double value;  // counts, or seconds
};

// All of them for people and programs, in a fixed order, and what follows from them:
//   overlap = 1 - exposed_seconds / communication_seconds: how much of the communication the program did not wait for;
//   1 if there was none, 0 at least.
std::vector<NamedMetric> list(const Metrics& metrics);

}  // namespace hvd

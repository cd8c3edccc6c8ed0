// Records what this rank is doing, in memory that other processes can read while it runs and after its death: the last
// 4,096 operations, the metrics, and whether the job is stalled. Uses the memory that hvdrun has created
// (HVD_FLIGHT_RECORDER), else creates its own.
//
// Owned by the runtime; metrics() shares ownership of the memory. Any thread. Recording an operation does not block: a
// few stores, about ten nanoseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/mutex.h"
#include "core/flight/flight_layout.h"
#include "core/net/shared_memory.h"

namespace hvd {

// With a resolution of a few milliseconds, at a cost of a few nanoseconds.
inline std::int64_t flight_time() { return coarse_now().time_since_epoch().count(); }

// One operation's record, while the operation is in progress. Each call is a few stores; no lock, no system call. One
// thread at a time.
class FlightEntry {
 public:
  FlightEntry() = default;  // records nothing
  FlightEntry(FlightRecord& record, std::uint64_t number) : record_(&record), number_(number) {}

  void performing(std::int64_t now) {
    if (!is_there()) return;
    record_->started.store(now, std::memory_order_relaxed);
    set(FlightState::performing);
  }
  // The operation was not performed after all, because another rank declined.
  void waits_again() {
    if (is_there()) set(FlightState::submitted);
  }
  void ended(StatusCode code) {
    if (!is_there()) return;
    record_->ended.store(flight_time(), std::memory_order_relaxed);
    set(code == StatusCode::ok ? FlightState::done : FlightState::failed, code);
  }
  // Completed, for callers that cannot afford to read the clock: the end time is the start time.
  void done() {
    if (is_there()) set(FlightState::done);
  }
  // Deletes the record: the operation is recorded anew elsewhere.
  void forget() {
    if (is_there()) set(FlightState::empty);
  }

 private:
  // False once a later operation has reused the slot. If that happens right after this check, which would take 4,096
  // operations between two instructions, a record is wrong.
  bool is_there() const {
    return record_ != nullptr && number_in(record_->word.load(std::memory_order_relaxed)) == number_;
  }
  void set(FlightState state, StatusCode code = StatusCode::ok) {
    record_->word.store(flight_word(number_, state, code), std::memory_order_release);
  }

  FlightRecord* record_ = nullptr;
  std::uint64_t number_ = 0;
};

class FlightRecorder {
 public:
  // Starts empty, in the memory of descriptor `inherited`, -1: none. The descriptor stays open for the next init of
  // this process, and is closed on exec from now on. If it cannot be used, memory is created. An operation or an init
  // that takes `stall_time` counts as stalled; zero: none does.
  FlightRecorder(int inherited, int rank, Duration stall_time = Duration::zero());
  ~FlightRecorder() { left(); }
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // All ranks have come to init.
  void initialized() { recorded().initializing.store(0, std::memory_order_relaxed); }
  // This rank has left the job. No effect if the memory belongs to another recorder by now.
  void left();

  // Why `inherited` could not be used; empty if it is in use.
  const std::string& problem() const { return problem_; }

  std::shared_ptr<Metrics> metrics() const { return {memory_, &recorded().metrics}; }

  // An operation begins, number `sequence` of the process set on this rank.
  FlightEntry submitted(const FlightWords& operation, std::uint64_t sequence) {
    return begin(operation, sequence, FlightState::submitted);
  }
  // The same for an operation that this thread performs at once.
  FlightEntry performing(const FlightWords& operation, std::uint64_t sequence) {
    return begin(operation, sequence, FlightState::performing);
  }

  // Records the stall inspector's warning, and that the stall is over.
  void stalled(std::string_view warning);
  void recovered();

  // The job has ended for this rank, `own`, for this reason. Only the first call counts.
  void job_ended(const Status& reason, int own);
  // This rank ends its job as one that has failed, unless another rank has failed before. `cause` follows its name
  // ("raised ValueError: ..."). The first cause counts, but replaces one from job_ended().
  void failed(std::string_view cause);
  // Set once the job has ended for this rank because of another rank: when, and which (kNobody: unknown). Any thread.
  struct EndByAnother {
    TimePoint when;
    int culprit = kNobody;
  };
  std::optional<EndByAnother> ended_by_another() const;

  const SharedMemory& memory() const { return *memory_; }

 private:
  FlightMemory& recorded() const { return *recorded_; }
  FlightEntry begin(const FlightWords& operation, std::uint64_t sequence, FlightState state);
  void forget_all();
  void put_failure(std::string_view cause) REQUIRES(mutex_);

  std::string problem_;
  const std::int64_t epoch_ = Clock::now().time_since_epoch().count();
  mutable Mutex mutex_;  // serializes the writers of FlightStall and FlightEnd
  std::optional<EndByAnother> ended_by_another_ GUARDED_BY(mutex_);
  bool has_told_cause_ GUARDED_BY(mutex_) = false;
  std::shared_ptr<SharedMemory> memory_;
  FlightMemory* recorded_ = nullptr;  // in memory_
};

// Creates memory for a recorder, for processes that start ranks. Throws Internal if that fails.
SharedMemory make_flight_memory();

// Copies at most `size` - 1 bytes of the name, and no part of a UTF-8 character: its beginning and its end, since names
// differ least in the middle.
void put_short_name(std::string_view name, char* into, std::size_t size);

}  // namespace hvd

// What this rank is doing, for whoever asks from outside, and after its death: the last 4,096 operations, the metrics,
// and whether the job is stalled. In the memory that hvdrun has made for it (HVD_FLIGHT_RECORDER), else in memory of
// its own.
//
// Owned by the runtime; whoever keeps metrics() keeps the memory. Any thread. An operation is recorded without waiting
// for anybody, by a few stores, which cost about ten nanoseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/metrics.h"
#include "core/flight/flight_entry.h"
#include "core/flight/flight_layout.h"
#include "core/net/shared_memory.h"

namespace hvd {

class FlightRecorder {
 public:
  // Begins anew, in the memory of descriptor `inherited`, -1: none. Such a descriptor stays open, for the next init of
  // this process, and is from now on closed for its children. Where it cannot be used, memory of its own. An operation
  // or an init that takes `stall_time` counts as stalled; zero: none does.
  FlightRecorder(int inherited, int rank, Duration stall_time = Duration::zero());
  ~FlightRecorder() { left(); }
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Until then it waits in init for the others.
  void initialized() { recorded().initializing.store(0, std::memory_order_relaxed); }
  // It is in the job no more. Nothing happens if the memory is another recorder's by now.
  void left();

  // Why `inherited` could not be used; empty if all is well.
  const std::string& problem() const { return problem_; }

  std::shared_ptr<Metrics> metrics() const { return {memory_, &recorded().metrics}; }

  // An operation begins. It is the process set's `sequence`th on this rank.
  FlightEntry submitted(const FlightWords& operation, std::uint64_t sequence) {
    return begin(operation, sequence, FlightState::submitted);
  }
  // The same of one that this thread performs at once.
  FlightEntry performing(const FlightWords& operation, std::uint64_t sequence) {
    return begin(operation, sequence, FlightState::performing);
  }

  // The stall inspector's warning, and that what it was about has come.
  void stalled(std::string_view warning);
  void recovered();

  // The job has ended for this rank, `own` in it, for this reason. The first one counts.
  void job_ended(const Status& reason, int own);
  // This rank ends its job as one that has failed, unless another one has done so before: why, in words that follow its
  // name ("raised ValueError: ..."). The first cause counts, but replaces one that job_ended() has told.
  void failed(std::string_view cause);
  // Set once the job has ended for this rank because of another one: when, and which (kNobody: not known). Any thread.
  struct EndByAnother {
    TimePoint when;
    int culprit = kNobody;
  };
  std::optional<EndByAnother> ended_by_another() const;

  const SharedMemory& memory() const { return *memory_; }

 private:
  FlightMemory& recorded() const { return *reinterpret_cast<FlightMemory*>(memory_->data()); }
  FlightEntry begin(const FlightWords& operation, std::uint64_t sequence, FlightState state);
  void forget_all();
  void put_failure(std::string_view cause);

  std::string problem_;
  const std::int64_t epoch_ = Clock::now().time_since_epoch().count();
  std::mutex stall_mutex_;  // of those who write it
  mutable std::mutex end_mutex_;
  std::optional<EndByAnother> ended_by_another_;  // guarded by end_mutex_, like the next
  bool has_told_cause_ = false;
  std::shared_ptr<SharedMemory> memory_;
};

// Memory for a recorder, as who starts a rank makes it. Throws Internal: there is none.
SharedMemory make_flight_memory();

// At most `size` - 1 characters of the name, its beginning and its end, for in the middle names differ least.
void put_short_name(std::string_view name, char* into, std::size_t size);

}  // namespace hvd

// One operation's record in the flight recorder, while the operation is in progress. Each call is a few stores; no
// lock, no system call. One thread at a time.
#pragma once

#include <cstdint>

#include "core/base/clock.h"
#include "core/flight/flight_layout.h"

namespace hvd {

// With a resolution of a few milliseconds, at a cost of a few nanoseconds.
inline std::int64_t flight_time() { return coarse_now().time_since_epoch().count(); }

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

}  // namespace hvd

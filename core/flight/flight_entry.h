// One operation's place in the flight recorder, for as long as it is under way. A few stores each; no lock, no system
// call. One thread at a time.
#pragma once

#include <cstdint>

#include "core/base/clock.h"
#include "core/flight/flight_layout.h"

namespace hvd {

// To a few milliseconds, for a few nanoseconds.
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
  // It was not performed after all, because another rank declined.
  void waits_again() {
    if (is_there()) set(FlightState::submitted);
  }
  void ended(StatusCode code) {
    if (!is_there()) return;
    record_->ended.store(flight_time(), std::memory_order_relaxed);
    set(code == StatusCode::ok ? FlightState::done : FlightState::failed, code);
  }
  // Completed, for callers that cannot afford to read the clock: the end time is that of the beginning.
  void done() {
    if (is_there()) set(FlightState::done);
  }
  // It never was: somebody else records it anew.
  void forget() {
    if (is_there()) set(FlightState::empty);
  }

 private:
  // Not if so many others have begun since that one has taken the slot. Should that happen right after this look, which
  // would take 4,096 operations between two instructions, a record is wrong.
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

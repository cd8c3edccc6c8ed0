// The virtual clock and its events, in order of time. Time advances only from one event to the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace hvd::simulation {

class EventQueue {
 public:
  TimePoint now() const { return now_; }

  // Schedules an event at that time, or now if it has passed; after events scheduled earlier for the same time.
  void at(TimePoint when, std::function<void()> what) {
    events_.push_back({std::max(when, now_), ++filed_, std::move(what)});
    std::push_heap(events_.begin(), events_.end(), later);
  }

  // Runs the next event. Returns false if there is none.
  bool step() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    event.what();
    return true;
  }

 private:
  struct Event {
    TimePoint when;
    std::uint64_t order;
    std::function<void()> what;
  };
  static bool later(const Event& a, const Event& b) { return a.when != b.when ? a.when > b.when : a.order > b.order; }

  TimePoint now_{};
  std::uint64_t filed_ = 0;
  std::vector<Event> events_;  // a heap
};

}  // namespace hvd::simulation

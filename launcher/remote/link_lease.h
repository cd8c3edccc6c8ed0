// Whether the other end of a link is still there: it says so five times in the length of a lease, and so do we. Pure.
#pragma once

#include "core/base/clock.h"

namespace hvd::launcher {

class LinkLease {
 public:
  LinkLease(Duration length, TimePoint now) : length_(length), heard_(now), looked_(now), beat_(now) {}

  void heard(TimePoint now) { heard_ = now; }
  // While it is paused (Ctrl-Z has stopped the job), silence means nothing.
  void pause(bool on, TimePoint now);
  // Whether it is time to say that we are here; then the next time is a fifth of the lease later.
  bool beat_is_due(TimePoint now);
  // Who was stopped itself, and comes to look very late, first gives the other end a moment.
  bool has_expired(TimePoint now);
  // When one of the two has something new to say.
  Deadline next_deadline() const;

  Duration length() const { return length_; }

 private:
  Duration length_;
  TimePoint heard_, looked_, beat_;
  bool paused_ = false;
};

}  // namespace hvd::launcher

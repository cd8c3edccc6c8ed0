// The lease of a link: decides whether the other end is still alive, and when to send the next beat. Both ends send
// five beats per lease. Pure.
#pragma once

#include "core/base/clock.h"

namespace hvd::launcher {

class LinkLease {
 public:
  LinkLease(Duration length, TimePoint now) : length_(length), heard_(now), looked_(now), beat_(now) {}

  void heard(TimePoint now) { heard_ = now; }
  // While paused (Ctrl-Z has stopped the job), the lease does not expire.
  void pause(bool on, TimePoint now);
  // Whether it is time to send a beat; if so, the next one is due a fifth of the lease later.
  bool beat_is_due(TimePoint now);
  // A process that checks very late, because it was stopped itself, first gives the other end a fifth of the lease.
  bool has_expired(TimePoint now);
  // When the result of beat_is_due() or has_expired() changes next.
  Deadline next_deadline() const;

  Duration length() const { return length_; }

 private:
  Duration length_;
  TimePoint heard_, looked_, beat_;
  bool paused_ = false;
};

}  // namespace hvd::launcher

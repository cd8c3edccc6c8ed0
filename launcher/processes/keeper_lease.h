// The lease that hvdrun's heartbeats renew; decides in the keeper whether hvdrun has been silent for too long. Pure.
#pragma once

#include <optional>

#include "core/base/clock.h"

namespace hvd::launcher {

class KeeperLease {
 public:
  // Starts the lease at `now`. A length of zero or less removes it.
  void set(Duration length, TimePoint now);
  void renew(TimePoint now) { renewed_ = now; }

  // When the lease expires; empty if there is no lease.
  std::optional<Deadline> deadline() const;
  // Whether the lease has expired. A keeper that asks more than half a lease late was not running itself, perhaps with
  // the whole machine: then the lease starts again.
  bool has_expired(TimePoint now);

 private:
  std::optional<Duration> length_;
  TimePoint renewed_{};
};

}  // namespace hvd::launcher

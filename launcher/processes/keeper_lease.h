// The keeper's watch over hvdrun's heartbeat: decides when hvdrun has been silent for too long. Pure.
#pragma once

#include <optional>

#include "core/base/clock.h"

namespace hvd::launcher {

class KeeperLease {
 public:
  // From now on hvdrun renews the lease in time. A length of zero or less ends the watch.
  void set(Duration length, TimePoint now);
  void renew(TimePoint now) { renewed_ = now; }

  // When the lease expires; empty: there is none.
  std::optional<Deadline> deadline() const;
  // Whether it has expired. A keeper that comes to ask this late was held up itself, perhaps with the whole machine:
  // then the lease begins anew.
  bool has_expired(TimePoint now);

 private:
  std::optional<Duration> length_;
  TimePoint renewed_{};
};

}  // namespace hvd::launcher

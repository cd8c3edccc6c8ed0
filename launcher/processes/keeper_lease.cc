#include "launcher/processes/keeper_lease.h"

namespace hvd::launcher {

void KeeperLease::set(Duration length, TimePoint now) {
  length_ = length > Duration::zero() ? std::optional(length) : std::nullopt;
  renewed_ = now;
}

std::optional<Deadline> KeeperLease::deadline() const {
  if (!length_) return std::nullopt;
  return renewed_ + *length_;
}

bool KeeperLease::has_expired(TimePoint now) {
  const auto end = deadline();
  if (!end || now < *end) return false;
  if (now < *end + *length_ / 2) return true;
  renewed_ = now;
  return false;
}

}  // namespace hvd::launcher

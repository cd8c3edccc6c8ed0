#include "launcher/remote/link.h"

#include <algorithm>

namespace hvd::launcher {
namespace {

constexpr int kBeatsPerLease = 5;

}  // namespace

void LinkLease::pause(bool on, TimePoint now) {
  paused_ = on;
  heard_ = looked_ = now;
}

bool LinkLease::beat_is_due(TimePoint now) {
  if (now < beat_) return false;
  beat_ = now + length_ / kBeatsPerLease;
  return true;
}

bool LinkLease::has_expired(TimePoint now) {
  if (now - looked_ > length_ / 2) heard_ = std::max(heard_, now - length_ + length_ / kBeatsPerLease);
  looked_ = now;
  return !paused_ && now - heard_ >= length_;
}

Deadline LinkLease::next_deadline() const { return paused_ ? beat_ : std::min(beat_, heard_ + length_); }

}  // namespace hvd::launcher

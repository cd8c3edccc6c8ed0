#include "core/net/keep_alive.h"

#include <algorithm>

namespace hvd {

namespace {

// At least so many if the lease is long enough: one lost packet must not end a connection.
constexpr int kProbes = 4;

}  // namespace

KeepAlive keep_alive(Duration lease) {
  const auto seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(lease).count());
  KeepAlive result;
  result.interval_s = std::max(1, seconds / (kProbes + 1));
  result.probes = std::max(1, (seconds - 1) / result.interval_s);
  result.idle_s = std::max(1, seconds - result.interval_s * result.probes);
  return result;
}

Duration SilenceWatch::look(const Delivery& delivery, TimePoint now) {
  if (!delivery.awaits_answer) {
    since_.reset();
    return Duration::zero();
  }
  since_ = std::max(since_.value_or(now), now - delivery.since_answer);
  return now - *since_;
}

}  // namespace hvd

// How long a host may be silent before it counts as dead. Pure; implemented in endpoint.cc.
//
// A host that loses power or its network sends neither a close nor a reset. On an idle connection the kernel detects
// that by keep-alive probes, without waking a thread. It sends no probes while bytes are in flight, and its limit for
// these (TCP_USER_TIMEOUT) includes the time in which a live peer, stopped for instance, accepts nothing. So a sender
// monitors what it has sent with a SilenceWatch.
#pragma once

#include <optional>

#include "core/base/clock.h"

namespace hvd {

inline constexpr Duration kDefaultLease = std::chrono::seconds(5);

// The kernel's settings, in whole seconds: the first probe after `idle_s` of silence, then one every `interval_s`; the
// connection breaks after `probes` without an answer, that is after the lease, rounded up to seconds; for a lease of up
// to one second after two.
struct KeepAlive {
  int idle_s = 1;
  int interval_s = 1;
  int probes = 1;

  int limit_s() const { return idle_s + interval_s * probes; }
};

KeepAlive keep_alive(Duration lease);

// The kernel's state of the bytes sent on a connection.
struct Delivery {
  bool complete = true;        // the peer's host has acknowledged all of them
  bool awaits_answer = false;  // some are in flight, or a probe whether the peer has room for more
  Duration since_answer{};     // since the peer's host acknowledged anything
};

// Detects a silent host on one connection on which something was sent: call look() periodically until all is delivered.
// A peer that accepts nothing, but whose host answers, is not silent.
class SilenceWatch {
 public:
  // How long an answer of the host has been overdue.
  Duration look(const Delivery& delivery, TimePoint now);

 private:
  std::optional<TimePoint> since_;
};

}  // namespace hvd

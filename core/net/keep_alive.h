// How long a host may be silent before it counts as dead. Pure.
//
// A host that loses power or its network sends neither a close nor a reset. On an idle connection the kernel finds out
// by keep-alive probes, without waking anybody. It sends none while bytes are on their way, and its own limit for these
// (TCP_USER_TIMEOUT) counts the time in which a live peer, stopped for instance, takes nothing. So whoever has sent
// looks after them with a SilenceWatch.
#pragma once

#include <optional>

#include "core/base/clock.h"

namespace hvd {

inline constexpr Duration kDefaultLease = std::chrono::seconds(5);

// What the kernel is told, in its whole seconds: the first probe after `idle_s` of silence, then one each `interval_s`;
// after `probes` without an answer the connection is broken, when as many seconds have passed as the lease has,
// rounded up, and for a lease up to one second after two.
struct KeepAlive {
  int idle_s = 1;
  int interval_s = 1;
  int probes = 1;

  int limit_s() const { return idle_s + interval_s * probes; }
};

KeepAlive keep_alive(Duration lease);

// What the kernel knows about the bytes that were sent on a connection.
struct Delivery {
  bool complete = true;        // the peer's host has confirmed all of them
  bool awaits_answer = false;  // some are on their way to it, or the question whether it has room for more
  Duration since_answer{};     // since the peer's host confirmed anything
};

// Of one connection on which something was sent: look() from time to time until all is delivered. A peer that takes
// nothing, but whose host answers, is not silent.
class SilenceWatch {
 public:
  // For how long the host owes an answer.
  Duration look(const Delivery& delivery, TimePoint now);

 private:
  std::optional<TimePoint> since_;
};

}  // namespace hvd

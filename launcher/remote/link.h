// One end of the connection between an agent and its parent, and its lease. Main thread only; nothing here blocks.
// Both ends are authenticated before a Link exists. Messages arrive whole, in order and once.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "core/base/clock.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

template <typename Outgoing, typename Incoming>
class Link {
 public:
  struct Listener {
    std::function<void(const Incoming&)> received;
    // Called once; nothing is received afterwards. Not called if this end is destroyed first.
    std::function<void(const std::string& cause)> lost;
  };

  virtual ~Link() = default;  // ends the connection; unsent messages are lost

  // Called once, before control returns to the event loop. Both callbacks may destroy the link.
  virtual void listen(Listener listener) = 0;
  // The message is dropped if the link is lost.
  virtual void send(Outgoing message) = 0;
  // Whether all messages are sent, so that the link may be destroyed. There is no notification; poll it.
  virtual bool all_sent() const = 0;
  // The address of the other end: "10.9.0.2:41822".
  virtual std::string peer() const = 0;
};

using LinkToParent = Link<proto::FromAgent, proto::ToAgent>;
using LinkToAgent = Link<proto::ToAgent, proto::FromAgent>;

// Decides whether the other end is still alive, and when to send the next heartbeat: five per lease, at both ends.
// Pure.
class LinkLease {
 public:
  LinkLease(Duration length, TimePoint now) : length_(length), received_(now), checked_(now), next_heartbeat_(now) {}

  void received(TimePoint now) { received_ = now; }
  // While paused (Ctrl-Z has stopped the job), the lease does not expire.
  void pause(bool on, TimePoint now) {
    paused_ = on;
    received_ = checked_ = now;
  }
  // Whether it is time to send a heartbeat; if so, the next one is due a fifth of the lease later.
  bool beat_is_due(TimePoint now) {
    if (now < next_heartbeat_) return false;
    next_heartbeat_ = now + length_ / kHeartbeatsPerLease;
    return true;
  }
  // A process that checks very late, because it was stopped itself, first gives the other end a fifth of the lease.
  bool has_expired(TimePoint now) {
    if (now - checked_ > length_ / 2) received_ = std::max(received_, now - length_ + length_ / kHeartbeatsPerLease);
    checked_ = now;
    return !paused_ && now - received_ >= length_;
  }
  // When the result of beat_is_due() or has_expired() changes next.
  Deadline next_deadline() const { return paused_ ? next_heartbeat_ : std::min(next_heartbeat_, received_ + length_); }

 private:
  static constexpr int kHeartbeatsPerLease = 5;

  Duration length_;
  TimePoint received_, checked_, next_heartbeat_;
  bool paused_ = false;
};

}  // namespace hvd::launcher

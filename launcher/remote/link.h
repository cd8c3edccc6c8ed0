// One end of the connection between an agent and its parent. Event loop's thread only; nothing here blocks.
//
// Both ends are authenticated before a Link exists. Messages arrive whole, in order and once.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

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
  // Whether all messages are sent, so that the link may be destroyed. If not, the loop's run_once() returns when they
  // are.
  virtual bool all_sent() const = 0;
  // The address of the other end: "10.9.0.2:41822".
  virtual std::string peer() const = 0;
};

using LinkToParent = Link<proto::FromAgent, proto::ToAgent>;
using LinkToAgent = Link<proto::ToAgent, proto::FromAgent>;

}  // namespace hvd::launcher

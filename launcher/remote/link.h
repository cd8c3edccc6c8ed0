// One end of the connection between an agent and its parent. Event loop's thread only; nothing here blocks.
//
// Both ends have proved that they belong to the job before there is a Link. Messages arrive whole, in order, once.
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
    // Once; nothing is received afterwards. Not if this end is destroyed first.
    std::function<void(const std::string& cause)> lost;
  };

  virtual ~Link() = default;  // ends the connection; what is not sent yet is lost

  // Once, before the event loop runs on. Both may destroy the link.
  virtual void listen(Listener listener) = 0;
  // Dropped if the link is lost.
  virtual void send(Outgoing message) = 0;
  // Whether everything is on its way, so that the link may be destroyed. If not, the loop's run_once() returns when it
  // is.
  virtual bool all_sent() const = 0;
  // Of the other end: "10.9.0.2:41822".
  virtual std::string peer() const = 0;
};

using LinkToParent = Link<proto::FromAgent, proto::ToAgent>;
using LinkToAgent = Link<proto::ToAgent, proto::FromAgent>;

}  // namespace hvd::launcher

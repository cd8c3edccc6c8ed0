// The server of a parent: accepts the connections of agents and passes them to the event loop's thread as links.
//
// A peer without the job's certificate gets no link, and is dropped silently.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launcher/loop/event_loop.h"
#include "launcher/remote/certificate.h"
#include "launcher/remote/link.h"

namespace hvd::launcher {

class AgentListener {
 public:
  using Attached = std::function<void(std::unique_ptr<LinkToAgent> agent)>;

  // `bind_host` is numeric: "0.0.0.0" for all interfaces. Throws Error. `attached` is called by the loop and may
  // destroy links, but not the listener.
  AgentListener(EventLoop& loop, const Certificate& certificate, const std::string& bind_host, Attached attached);
  // The remaining links are lost. Blocks, one second at most, until links that were destroyed before have been closed
  // at their agents.
  ~AgentListener();
  AgentListener(const AgentListener&) = delete;
  AgentListener& operator=(const AgentListener&) = delete;

  // Chosen by the kernel.
  std::uint16_t port() const { return port_; }

 private:
  class Service;

  std::unique_ptr<Service> service_;
  std::uint16_t port_ = 0;
};

}  // namespace hvd::launcher

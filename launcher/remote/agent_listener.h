// The parent's end: takes up the connections of agents, as links, on the event loop's thread.
//
// Who does not show the job's certificate does not get as far as a link, and nobody hears of it.
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

  // `bind_host` is numeric: "0.0.0.0" for all. Throws Error. `attached` is called by the loop and may destroy links,
  // but not the listener.
  AgentListener(EventLoop& loop, const Certificate& certificate, const std::string& bind_host, Attached attached);
  // Links that there are still are lost. Blocks until those destroyed before have said so to their agents, for a second
  // at most.
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

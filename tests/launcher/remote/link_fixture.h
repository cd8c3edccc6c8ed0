// A parent and its agents in one process, over loopback, with one event loop for all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/remote/grpc_link.h"

namespace hvd::launcher {

template <typename OneLink, typename Incoming>
struct End {
  std::unique_ptr<OneLink> link;
  std::vector<Incoming> received;
  std::vector<std::string> lost;

  void listen() {
    link->listen({.received = [this](const Incoming& message) { received.push_back(message); },
                  .lost = [this](const std::string& cause) { lost.push_back(cause); }});
  }
};
using AgentEnd = End<LinkToParent, proto::ToAgent>;
using ParentEnd = End<LinkToAgent, proto::FromAgent>;

struct LinkFixture {
  EventLoop loop;
  Certificate certificate = make_certificate();
  std::vector<std::unique_ptr<ParentEnd>> parents;  // one of each agent
  std::unique_ptr<AgentListener> listener =
      std::make_unique<AgentListener>(loop, certificate, "127.0.0.1", [this](std::unique_ptr<LinkToAgent> link) {
        parents.push_back(std::make_unique<ParentEnd>());
        parents.back()->link = std::move(link);
        parents.back()->listen();
      });

  Address address() const { return {.host = "127.0.0.1", .port = listener->port()}; }

  // Whether it has come true in time.
  template <typename Condition>
  bool run_until(Condition condition, Duration limit = 20s) {
    const Deadline deadline = deadline_after(limit);
    while (!condition()) {
      if (Clock::now() >= deadline) return false;
      loop.run_once(deadline);
    }
    return true;
  }

  // With a link at both ends.
  std::unique_ptr<AgentEnd> attach() {
    auto agent = std::make_unique<AgentEnd>();
    const std::size_t before = parents.size();
    agent->link = connect_to_parent(loop, certificate, address(), deadline_after(20s));
    agent->listen();
    run_until([&] { return parents.size() > before; });
    return agent;
  }
};

// Numbered, so that order can be told.
inline proto::FromAgent started(int number) {
  proto::FromAgent message;
  message.mutable_rank_started()->set_pid(number);
  return message;
}

inline proto::ToAgent signal_number(int number) {
  proto::ToAgent message;
  message.mutable_signal()->set_signal(number);
  return message;
}

}  // namespace hvd::launcher

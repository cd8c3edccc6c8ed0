// For tests of what runs scripts as its children, which the event loop of the test reaps.
#pragma once

#include <sys/epoll.h>

#include <functional>

#include "core/base/clock.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

// Runs the loop, and passes on each child that ends, until there is `enough`; for a minute at most.
inline void run_until(EventLoop& loop, SignalSource& signals, const std::function<bool()>& enough,
                      const std::function<void(pid_t pid, ExitStatus status)>& child_ended) {
  loop.watch(signals.fd(), EPOLLIN, [&] {
    signals.take();
    for (const auto& [pid, status] : reap_children()) child_ended(pid, status);
  });
  const Deadline deadline = deadline_after(std::chrono::seconds(60));
  while (!enough() && Clock::now() < deadline) loop.run_once(deadline);
  loop.forget(signals.fd());
}

}  // namespace hvd::launcher

// epoll with a callback per descriptor. hvdrun's main thread lives in it; nothing here blocks elsewhere.
//
// Descriptors are borrowed: forget() one before closing it. A callback may watch and forget any, itself included.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "core/base/clock.h"
#include "core/net/socket.h"

namespace hvd::launcher {

class EventLoop {
 public:
  using Callback = std::function<void()>;

  EventLoop();

  // EPOLLIN, EPOLLOUT, EPOLLET. Broken descriptors are reported too. Throws Error.
  void watch(int fd, std::uint32_t events, Callback callback);
  // Nothing happens if it is not watched.
  void forget(int fd);

  // Waits until something happens or the deadline comes, and calls whom it concerns.
  void run_once(std::optional<Deadline> deadline);

 private:
  FileDescriptor epoll_;
  std::map<int, std::shared_ptr<const Callback>> callbacks_;
};

}  // namespace hvd::launcher

// epoll with a callback per descriptor. hvdrun's main thread lives in it; nothing here blocks elsewhere.
//
// Timers are called in the loop too. Descriptors are borrowed: forget() one before closing it. A callback may watch and
// forget any, itself included.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/base/clock.h"
#include "core/net/socket.h"

namespace hvd::launcher {

class Timer;

class EventLoop {
 public:
  using Callback = std::function<void()>;

  EventLoop();

  // EPOLLIN, EPOLLOUT, EPOLLET. Broken descriptors are reported too. Throws Error.
  void watch(int fd, std::uint32_t events, Callback callback);
  // Nothing happens if it is not watched.
  void forget(int fd);

  // Waits until something happens or the deadline comes, and calls whom it concerns: descriptors first, then timers.
  void run_once(std::optional<Deadline> deadline);

 private:
  friend class Timer;
  void call_due_timers();

  // A descriptor's number may be another one's before all events of a batch are handed out: watches are numbered.
  using WatchNumber = std::uint64_t;

  FileDescriptor epoll_;
  std::set<Timer*> timers_;
  WatchNumber last_number_ = 0;
  std::map<int, WatchNumber> numbers_;  // by descriptor
  std::map<WatchNumber, std::shared_ptr<const Callback>> callbacks_;
};

// Calls back once when its time has come; set() it anew then. Set, unset and destroyed on the loop's thread, in
// callbacks too.
class Timer {
 public:
  Timer(EventLoop& loop, EventLoop::Callback callback);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void set(std::optional<Deadline> deadline) { deadline_ = deadline; }

 private:
  friend class EventLoop;
  EventLoop& loop_;
  const EventLoop::Callback callback_;
  std::optional<Deadline> deadline_;
};

}  // namespace hvd::launcher

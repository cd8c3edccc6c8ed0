// A single-threaded event loop: epoll with a callback per descriptor, and timers. hvdrun's main thread runs it and
// blocks nowhere else.
//
// Descriptors are borrowed: call forget() before closing one. A callback may watch and forget any descriptor, including
// its own.
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

  // `events`: EPOLLIN, EPOLLOUT, EPOLLET. Errors and hang-ups are always reported. Throws Error.
  void watch(int fd, std::uint32_t events, Callback callback);
  // Does nothing if the descriptor is not watched.
  void forget(int fd);

  // Waits for an event, a timer or the deadline, then runs the callbacks: descriptors first, then timers.
  void run_once(std::optional<Deadline> deadline);

 private:
  friend class Timer;
  void call_due_timers();

  // A descriptor's number may be reused before all events of a batch are dispatched; watch numbers are not.
  using WatchNumber = std::uint64_t;

  FileDescriptor epoll_;
  std::set<Timer*> timers_;
  WatchNumber last_number_ = 0;
  std::map<int, WatchNumber> numbers_;  // by descriptor
  std::map<WatchNumber, std::shared_ptr<const Callback>> callbacks_;
};

// A one-shot timer: calls back once when its deadline passes; call set() to rearm it. Must be set, unset and destroyed
// on the loop's thread; callbacks may do so.
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

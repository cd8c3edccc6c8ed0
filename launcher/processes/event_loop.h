// A single-threaded event loop with timers and hvdrun's signals. The main thread runs it. Calls that may block say
// for how long.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/socket.h"

namespace hvd::launcher {

// Throws Internal with the text "<what>: <text of errno>".
[[noreturn]] inline void throw_errno(const std::string& what) { throw Internal(what + ": " + error_text(errno)); }

// Whether a signal asks hvdrun or an agent to end its job.
inline bool asks_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

class Timer;

// epoll with a callback per descriptor, and timers. Descriptors are borrowed: call forget() before closing one. A
// callback may watch and forget any descriptor, including its own.
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

  // A descriptor's number may be reused before all events of a batch are dispatched; watch numbers are not.
  using WatchNumber = std::uint64_t;

  FileDescriptor epoll_;
  std::set<Timer*> timers_;
  WatchNumber last_number_ = 0;
  std::map<int, WatchNumber> numbers_;  // by descriptor
  std::map<WatchNumber, std::shared_ptr<const Callback>> callbacks_;
};

// Calls back once when its deadline passes; set() rearms it. The loop's thread only; callbacks may set and destroy it.
class Timer {
 public:
  Timer(EventLoop& loop, EventLoop::Callback callback);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void set(std::optional<Deadline> deadline);

 private:
  friend class EventLoop;
  EventLoop& loop_;
  const EventLoop::Callback callback_;
  std::optional<Deadline> deadline_;
};

// Delivers hvdrun's signals through a descriptor (signalfd) that an event loop can watch.
// Constructed first in main, before any thread exists, so that all threads have these signals blocked. Signals that
// were ignored when hvdrun was started (nohup, a shell's background jobs) stay ignored.
class SignalSource {
 public:
  SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  // Readable when a signal is pending.
  int fd() const;
  // Whether take() would return any signal.
  bool pending() const;
  // Returns the signals received since the last call, lowest number first.
  std::vector<int> take();

  // Restores the signal mask and dispositions that hvdrun was started with, before exec. Async-signal-safe.
  void restore_original() const;

 private:
  sigset_t original_mask_;
  struct sigaction original_pipe_, original_file_size_, original_child_;
  FileDescriptor fd_;
};

}  // namespace hvd::launcher

// The reading end of a rank's standard output or standard error. Main thread only.
#pragma once

#include <functional>
#include <string_view>

#include "core/net/socket.h"
#include "launcher/loop/event_loop.h"

namespace hvd::launcher {

class OutputPipe {
 public:
  // `wrote` gets a piece at a time, so that no rank keeps the others waiting, and at the end, once, none.
  OutputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void(std::string_view bytes)> wrote);
  ~OutputPipe();
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;

  bool closed() const { return !pipe_; }

  // While it is held, nothing is read.
  void hold(bool on);
  // Nobody is left who could write: closes as soon as the pipe is empty.
  void close_when_empty();

 private:
  void on_readable();
  void read_some();
  void close();

  EventLoop& loop_;
  FileDescriptor pipe_;
  const std::function<void(std::string_view)> wrote_;
  bool held_ = false;
  bool watched_ = false;
  bool closing_ = false;
};

}  // namespace hvd::launcher

// The read end of a rank's standard output or standard error pipe. Main thread only.
#pragma once

#include <functional>
#include <string_view>

#include "core/net/socket.h"
#include "launcher/loop/event_loop.h"

namespace hvd::launcher {

class OutputPipe {
 public:
  // `wrote` is called with one piece at a time, so that no rank delays the others, and once with an empty piece at the
  // end.
  OutputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void(std::string_view bytes)> wrote);
  ~OutputPipe();
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;

  bool closed() const { return !pipe_; }

  // While held, the pipe is not read.
  void hold(bool on);
  // No writer is left: closes as soon as the pipe is empty.
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

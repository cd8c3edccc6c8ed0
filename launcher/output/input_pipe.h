// The write end of a rank's standard input pipe. Main thread only.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/net/socket.h"
#include "launcher/loop/event_loop.h"

namespace hvd::launcher {

class InputPipe {
 public:
  // `taken` is called when all of a piece is in the pipe, or the rank no longer reads; it may write the next piece.
  InputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void()> taken);
  ~InputPipe();
  InputPipe(const InputPipe&) = delete;
  InputPipe& operator=(const InputPipe&) = delete;

  // Writes the next piece; call it only after `taken` for the last one. An empty piece closes the pipe.
  void write(std::string_view bytes);

 private:
  void write_waiting();
  void close();

  EventLoop& loop_;
  FileDescriptor pipe_;
  const std::function<void()> taken_;
  std::string waiting_;
};

}  // namespace hvd::launcher

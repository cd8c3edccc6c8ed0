// Passes what is typed at hvdrun's terminal on to rank 0. Main thread only.
//
// The ranks are background processes to the terminal and would be stopped if they read from it. hvdrun reads for rank
// 0, and only while it is in the foreground itself: else the line was meant for the shell. An input that is no terminal
// needs none of this; rank 0 inherits it.
#pragma once

#include <string>

#include "core/net/socket.h"
#include "launcher/event_loop.h"

namespace hvd::launcher {

class TerminalInput {
 public:
  // `pipe` is the writing end of rank 0's standard input.
  TerminalInput(EventLoop& loop, int terminal, FileDescriptor pipe);
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

 private:
  void read_lines();
  void write_waiting();
  void close();

  EventLoop& loop_;
  const int terminal_;
  FileDescriptor pipe_;
  std::string waiting_;
  bool at_end_ = false;  // Ctrl-D: rank 0 sees the end once everything before it is written
};

}  // namespace hvd::launcher

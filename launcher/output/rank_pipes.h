// The pipes of the ranks' standard streams, and what feeds their input. Main thread only.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/net/socket.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

// The write end of a rank's standard input pipe.
class InputPipe {
 public:
  // `taken` is called when all of a piece is in the pipe, or the rank no longer reads; it may write the next piece.
  InputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void()> taken);
  ~InputPipe();

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

// The read end of a rank's standard output or standard error pipe.
class OutputPipe {
 public:
  // `wrote` is called with one piece at a time, so that no rank delays the others; at the end, with an empty one.
  OutputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void(std::string_view bytes)> wrote);
  ~OutputPipe();

  bool closed() const;

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

// Forwards hvdrun's standard input to ranks that cannot inherit it: ranks on other hosts, several ranks, and any rank
// if it is a terminal.
// For a terminal, the ranks are background processes and would be stopped if they read from it. hvdrun reads for them,
// and only while it is in the foreground itself: else the line was meant for the shell. A piece is read once all ranks
// have taken the one before, so that nothing is buffered and the slowest rank sets the pace.
class InputFeed {
 public:
  // `write` is called with a piece for a rank; an empty piece means end of input. `input` is borrowed.
  InputFeed(EventLoop& loop, int input, const std::vector<int>& ranks,
            std::function<void(int rank, std::string_view bytes)> write);
  ~InputFeed();
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  // The rank has taken the last piece.
  void taken(int rank);
  // The rank takes no more input.
  void forget(int rank);

 private:
  void read_on();
  void read_piece();

  EventLoop& loop_;
  const int input_;
  const std::function<void(int, std::string_view)> write_;
  const bool is_terminal_;
  bool is_watched_ = false;  // by the loop; false for a file, which can be read at any time
  bool at_end_ = false;
  std::set<int> ranks_;
  std::set<int> busy_;  // ranks that have not taken the last piece yet
  Timer next_;          // for the next piece
};

}  // namespace hvd::launcher

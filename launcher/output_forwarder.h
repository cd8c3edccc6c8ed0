// One stream of one rank (standard output or standard error): reads its pipe and passes whole lines on to hvdrun's own
// stream, everything to a file if there is one, and to the tail that failure reports quote. Main thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/net/socket.h"
#include "launcher/event_loop.h"
#include "launcher/line_splitter.h"
#include "launcher/output_file.h"
#include "launcher/output_sink.h"
#include "launcher/output_tail.h"

namespace hvd::launcher {

class OutputForwarder {
 public:
  struct Options {
    LineSplitter::Tag tag;    // empty: lines go out as they are
    bool whole_lines = true;  // false: whatever comes goes out at once (a job of one rank)
    std::optional<OutputFile> file;
    std::function<void(const std::string&)> complain;  // a line for the user
  };

  OutputForwarder(EventLoop& loop, FileDescriptor pipe, OutputSink& sink, Options options);
  ~OutputForwarder();
  OutputForwarder(const OutputForwarder&) = delete;
  OutputForwarder& operator=(const OutputForwarder&) = delete;

  bool closed() const { return !pipe_; }
  const OutputTail& tail() const { return tail_; }

  // Reading stops by itself when the sink is congested; this takes it up again.
  void resume();
  // Nobody is left who could write: closes as soon as the pipe is empty.
  void close_when_empty();
  // Closes now, whatever the pipe holds.
  void close();

  // On a terminal a line that stays incomplete for a moment is shown as it is: it may be a prompt.
  std::optional<Deadline> next_deadline() const { return show_partial_at_; }
  void show_partial(TimePoint now);

 private:
  void on_readable();
  void read_some();
  void forward(std::string_view bytes);
  void write_file(std::string_view bytes);

  EventLoop& loop_;
  FileDescriptor pipe_;
  OutputSink& sink_;
  Options options_;
  LineSplitter splitter_;
  OutputTail tail_;
  bool paused_ = false;
  bool closing_ = false;
  std::optional<Deadline> show_partial_at_;
};

}  // namespace hvd::launcher

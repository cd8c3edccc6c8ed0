// One stream of one rank (standard output or standard error), as hvdrun shows it: whole lines to hvdrun's own stream,
// everything to a file if there is one, and to the tail that failure reports quote. Main thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/output_file.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/output_tail.h"

namespace hvd::launcher {

class OutputStream {
 public:
  struct Options {
    LineSplitter::Tag tag;    // empty: lines go out as they are
    bool whole_lines = true;  // false: whatever comes goes out at once (a job of one rank)
    bool shown = true;        // false: nothing goes out
    int place = 0;            // of its bar among others
    std::function<std::string(std::string_view)> hold_back;  // of what is to be shown; empty: nothing
    std::optional<OutputFile> file;
    std::function<void(const std::string&)> complain;  // a line for the user
  };

  OutputStream(OutputSink& sink, Options options);

  void feed(std::string_view bytes);
  // Nothing more comes. Twice is once.
  void close();
  bool closed() const { return closed_; }
  const OutputTail& tail() const { return tail_; }

  // What stays incomplete for a moment is shown nevertheless: on a terminal a line as it is, since it may be a prompt;
  // and the state of a line that is overwritten, as a bar on a terminal, elsewhere as a line now and then.
  std::optional<Deadline> next_deadline() const;
  void show_partial(TimePoint now);

 private:
  void write_file(std::string_view bytes);
  void flush();
  void show(const std::string& lines);
  void show_bar();
  void hide_bar();

  OutputSink& sink_;
  Options options_;
  LineSplitter splitter_;
  OutputTail tail_;
  bool closed_ = false;
  std::optional<Deadline> show_partial_at_, show_bar_at_;
  Deadline no_bar_before_{};
  bool bar_is_shown_ = false;
};

}  // namespace hvd::launcher

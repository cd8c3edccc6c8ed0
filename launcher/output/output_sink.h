// Writes the output of all ranks to hvdrun's standard output or standard error, with progress bars below it on a
// terminal. Main thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/net/socket.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

// The progress bars of the ranks at the bottom of a terminal: lines that are still being overwritten, one below the
// other in the order of their places, below all complete lines. Pure; the owner writes the returned text.
class Bars {
 public:
  struct Terminal {
    std::size_t columns, rows;
  };

  // Takes effect at the next draw(). An empty text removes the bar.
  void set(int place, std::string text);
  bool empty() const;

  // Erases the bars that are drawn; the cursor is then at the beginning of the first one.
  std::string erase();
  // Draws the bars at the cursor, which must begin a line, each cut to the width; of those beyond, only the number.
  std::string draw(Terminal terminal);

 private:
  std::map<int, std::string> bars_;
  std::size_t drawn_ = 0;  // lines
};

// Writes without blocking: buffers what the reader does not take yet; while congested() the sources stop reading.
class OutputSink {
 public:
  static constexpr std::size_t kCongested = std::size_t{1} << 20;

  struct Callbacks {
    std::function<void()> relieved;                   // congested() has become false
    std::function<void()> reader_left;                // called once, of a pipe also while nothing is written
    std::function<void(const std::string&)> failure;  // called once, with the cause: output is lost from now on
  };

  // Borrows `fd`. A pipe or terminal is opened a second time as non-blocking: setting the flag on `fd` itself would
  // affect the shell and all other processes that write there.
  OutputSink(EventLoop& loop, int fd, Callbacks callbacks);
  ~OutputSink();

  void append(std::string_view bytes);
  // Text that begins a line, also behind output that ended inside of one.
  void append_lines(std::string_view bytes);
  // Shows a line that will be overwritten, in the order of the places; an empty text removes it. Requires draws_bars().
  void set_bar(int place, std::string text);
  bool congested() const;
  bool empty() const;
  bool is_terminal() const;
  // Whether this is a terminal whose cursor can be moved.
  bool draws_bars() const;

 private:
  void put(std::string_view bytes);
  void draw_bars();
  int target() const;
  // Writes as much as possible now; returns the number of bytes that are written or lost for good.
  std::size_t write_some(std::string_view bytes);
  void write_waiting();
  void watch_reader();
  void fail(int error);

  EventLoop& loop_;
  const int fd_;
  const Callbacks callbacks_;
  FileDescriptor twin_;
  bool is_terminal_ = false, is_socket_ = false, is_pipe_ = false, draws_bars_ = false;
  Bars bars_;
  bool begins_line_ = true;  // whether the cursor is at the beginning of a line, apart from bars
  bool broken_ = false;
  std::string waiting_;
  std::size_t written_ = 0;  // of waiting_
};

// Whether both are the same file, pipe or terminal: their lines must then be written in one order, by one sink.
bool is_same_file(int fd_a, int fd_b);

}  // namespace hvd::launcher

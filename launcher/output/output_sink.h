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
  void set(int place, std::string text) {
    if (text.empty()) {
      bars_.erase(place);
    } else {
      bars_[place] = std::move(text);
    }
  }
  bool empty() const { return bars_.empty(); }

  // Erases the bars that are drawn; the cursor is then at the beginning of the first one.
  std::string erase() {
    if (drawn_ == 0) return "";
    std::string result = "\r";
    if (drawn_ > 1) result += "\x1b[" + std::to_string(drawn_ - 1) + "A";
    drawn_ = 0;
    return result + "\x1b[J";
  }
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
  ~OutputSink() { loop_.forget(target()); }

  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    put(bars_.erase());
    put(bytes);
    begins_line_ = bytes.back() == '\n';
    draw_bars();
  }
  // Text that begins a line, also behind output that ended inside of one.
  void append_lines(std::string_view bytes) {
    if (!begins_line_ && !bytes.empty()) append("\n");
    append(bytes);
  }
  // Shows a line that will be overwritten, in the order of the places; an empty text removes it. Requires draws_bars().
  void set_bar(int place, std::string text) {
    bars_.set(place, std::move(text));
    put(bars_.erase());
    draw_bars();
  }
  bool congested() const { return waiting_.size() - written_ > kCongested; }
  bool empty() const { return waiting_.empty(); }
  bool is_terminal() const { return is_terminal_; }
  // Whether this is a terminal whose cursor can be moved.
  bool draws_bars() const { return draws_bars_; }

 private:
  void put(std::string_view bytes);
  void draw_bars();
  int target() const { return twin_ ? twin_.get() : fd_; }
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

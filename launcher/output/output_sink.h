// hvdrun's own standard output or standard error. Never blocks: what the reader does not take yet waits in memory,
// and congested() tells the sources to stop reading meanwhile. On a terminal, progress bars stand below what is
// written. Main thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/net/socket.h"
#include "launcher/loop/event_loop.h"
#include "launcher/output/bars.h"

namespace hvd::launcher {

class OutputSink {
 public:
  static constexpr std::size_t kCongested = std::size_t{1} << 20;

  struct Callbacks {
    std::function<void()> relieved;                   // congested() has become false
    std::function<void()> reader_left;                // once
    std::function<void(const std::string&)> failure;  // once: why output is lost from now on
  };

  // Borrows `fd`; where it is a pipe or a terminal, opens it a second time to have it non-blocking: the flag on `fd`
  // itself would be shared with the shell and everybody else who writes there.
  OutputSink(EventLoop& loop, int fd, Callbacks callbacks);
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  void append(std::string_view bytes);
  // Shows a line that will be overwritten, in the order of the places; an empty one takes it away. draws_bars() only.
  void set_bar(int place, std::string text);
  bool congested() const { return waiting_.size() - written_ > kCongested; }
  bool empty() const { return waiting_.empty(); }
  bool is_terminal() const { return is_terminal_; }
  // It is a terminal whose cursor can be moved.
  bool draws_bars() const { return draws_bars_; }

 private:
  void put(std::string_view bytes);
  void draw_bars();
  int target() const { return twin_ ? twin_.get() : fd_; }
  // As much as goes now; the number of bytes that are settled (written, or lost for good).
  std::size_t write_some(std::string_view bytes);
  void write_waiting();
  void fail(int error);

  EventLoop& loop_;
  const int fd_;
  const Callbacks callbacks_;
  FileDescriptor twin_;
  bool is_terminal_ = false, is_socket_ = false, draws_bars_ = false;
  Bars bars_;
  bool begins_line_ = true;  // where the cursor is, but for bars
  bool broken_ = false;
  std::string waiting_;
  std::size_t written_ = 0;  // of waiting_
};

// Whether both are the same file, pipe or terminal: lines for either then have to queue up together.
bool is_same_file(int fd_a, int fd_b);

}  // namespace hvd::launcher

// Forwards hvdrun's standard input to ranks that cannot inherit it: ranks on other hosts, several ranks, and any rank
// if it is a terminal. Main thread only.
//
// For a terminal, the ranks are background processes and would be stopped if they read from it. hvdrun reads for them,
// and only while it is in the foreground itself: else the line was meant for the shell. A piece is read once all ranks
// have taken the one before, so that nothing is buffered and the slowest rank sets the pace.
#pragma once

#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "launcher/loop/event_loop.h"

namespace hvd::launcher {

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
};

}  // namespace hvd::launcher

// The lines at the bottom of a terminal that are still being overwritten: the ranks' progress bars, one below the other
// in the order of their places, under everything that is complete. Pure; the owner writes what it returns.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace hvd::launcher {

class Bars {
 public:
  struct Terminal {
    std::size_t columns, rows;
  };

  // From the next draw() on. An empty text: there is none any more.
  void set(int place, std::string text);
  bool empty() const { return bars_.empty(); }

  // Takes what is drawn away; the cursor is then where the first bar began.
  std::string erase();
  // Draws them where the cursor is, at the beginning of a line, each cut to the terminal's width. Those that do not fit
  // are counted.
  std::string draw(Terminal terminal);

 private:
  std::map<int, std::string> bars_;
  std::size_t drawn_ = 0;  // lines
};

}  // namespace hvd::launcher

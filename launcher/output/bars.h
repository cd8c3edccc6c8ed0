// The progress bars of the ranks at the bottom of a terminal: lines that are still being overwritten, one below the
// other in the order of their places, below all complete lines. Pure; the owner writes the returned text.
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

  // Takes effect at the next draw(). An empty text removes the bar.
  void set(int place, std::string text);
  bool empty() const { return bars_.empty(); }

  // Erases the bars that are drawn; the cursor is then at the beginning of the first one.
  std::string erase();
  // Draws the bars at the cursor, which must be at the beginning of a line, each cut to the terminal's width. Of bars
  // that do not fit, only the number is shown.
  std::string draw(Terminal terminal);

 private:
  std::map<int, std::string> bars_;
  std::size_t drawn_ = 0;  // lines
};

}  // namespace hvd::launcher

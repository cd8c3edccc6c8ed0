// Keeps the last lines of a rank's standard error for the report of its failure, in bounded memory. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

class OutputTail {
 public:
  static constexpr std::size_t kBytes = 16 * 1024;
  static constexpr std::size_t kMaxLineBytes = 500;

  void feed(std::string_view bytes);

  // At most `count` lines, without line ends; for a line that was overwritten with \r its last state, for a long line
  // its beginning.
  std::vector<std::string> last_lines(std::size_t count) const;

 private:
  std::string bytes_;
  bool begins_inside_line_ = false;
};

}  // namespace hvd::launcher

// Splits the output of a rank into lines, and keeps the last ones. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// Splits a stream into lines, so that lines of different ranks never mix. Pure.
//
// A line ends at \n. The output is the input, byte for byte, only later, with a tag at the beginning of every line; the
// tag may differ each time (a time stamp). A line longer than kMaxPartial is passed on in pieces. Only for a line that
// is overwritten with \r (a progress bar), earlier states are left out.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxPartial = std::size_t{1} << 20;

  using Tag = std::function<std::string()>;  // empty: none
  explicit LineSplitter(Tag tag) : tag_(std::move(tag)) {}

  // Appends the complete lines to `out` and keeps the rest.
  void feed(std::string_view bytes, std::string& out);
  // Appends the rest, although its line is incomplete; an overwritten line is completed with \n.
  void flush(std::string& out);

  // The rest is the beginning of a line: perhaps a prompt.
  bool has_partial() const { return !partial_.empty() && !is_overwritten(); }
  // The rest is a line that was overwritten, and may be again.
  bool is_overwritten() const { return partial_.find('\r') != std::string::npos; }
  // The last state of the rest, with a tag and without \n; empty if it has no visible character.
  std::string last_state() const;

 private:
  void emit(std::string_view bytes, std::string& out);

  Tag tag_;
  std::string partial_;
  bool line_is_open_ = false;  // the beginning of the current line, with its tag, was passed on already
};

// Keeps the last lines of a rank's standard error for the report of its failure, in bounded memory. Pure.
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

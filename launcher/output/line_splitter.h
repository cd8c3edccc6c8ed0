// Cuts a stream into lines, so that lines of different ranks never mix. Pure.
//
// A line ends at \n. What comes out is what went in, byte for byte, only later, plus the tag at the beginning of every
// line, which may be another one each time (a clock's). A line longer than kMaxPartial goes out in pieces. Only of a
// line that is overwritten with \r (a progress bar) earlier states are left out.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace hvd::launcher {

class LineSplitter {
 public:
  static constexpr std::size_t kMaxPartial = std::size_t{1} << 20;

  using Tag = std::function<std::string()>;  // empty: none
  explicit LineSplitter(Tag tag) : tag_(std::move(tag)) {}

  // Appends the lines that are complete now to `out` and keeps the rest.
  void feed(std::string_view bytes, std::string& out);
  // Appends the rest, though its line is not complete; an overwritten one becomes a line.
  void flush(std::string& out);

  // The rest is the beginning of a line: perhaps a prompt.
  bool has_partial() const { return !partial_.empty() && !is_overwritten(); }
  // The rest is a line that was overwritten, and may be again.
  bool is_overwritten() const { return partial_.find('\r') != std::string::npos; }
  // Its last state, with a tag and without an end; empty if there is nothing to be seen.
  std::string last_state() const;

 private:
  void emit(std::string_view bytes, std::string& out);

  Tag tag_;
  std::string partial_;
  bool line_is_open_ = false;  // the beginning of the current line went out already, and its tag with it
};

}  // namespace hvd::launcher

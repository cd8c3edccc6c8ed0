// Splits a stream into lines, so that lines of different ranks never mix. Pure.
//
// A line ends at \n. The output is the input, byte for byte, only later, with a tag at the beginning of every line; the
// tag may differ each time (a time stamp). A line longer than kMaxPartial is passed on in pieces. Only for a line that
// is overwritten with \r (a progress bar), earlier states are left out.
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

}  // namespace hvd::launcher

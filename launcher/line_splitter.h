// Cuts a stream into lines, so that lines of different ranks never mix. Pure.
//
// A line ends at \n or at \r (progress bars). What comes out is what went in, byte for byte, only later, plus the tag
// at the beginning of every line, which may be another one each time (a clock's). A line longer than kMaxPartial goes
// out in pieces.
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
  // Appends the rest, though its line is not complete.
  void flush(std::string& out);
  bool has_partial() const { return !partial_.empty(); }

 private:
  void emit(std::string_view bytes, std::string& out);

  Tag tag_;
  std::string partial_;
  bool line_is_open_ = false;  // the beginning of the current line went out already, and its tag with it
  bool after_cr_ = false;      // the last byte that went out was \r: a \n now belongs to that line
};

}  // namespace hvd::launcher

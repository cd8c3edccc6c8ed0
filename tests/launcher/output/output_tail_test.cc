#include "launcher/output/output_tail.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("the last lines, as a reader would have seen them") {
  struct Row {
    std::string text;
    Lines last_three;
  };
  const Row rows[] = {
      {"", {}},
      {"\n\n", {}},
      {"a\n", {"a"}},
      {"a\nb\nc\nd\n", {"b", "c", "d"}},
      {"a\n\nb", {"a", "", "b"}},
      {"10%\r20%\r30%\nerror\r\n", {"30%", "error"}},
      {"no end of line", {"no end of line"}},
  };
  for (const Row& row : rows) {
    OutputTail whole, by_bytes;
    whole.feed(row.text);
    for (char byte : row.text) by_bytes.feed({&byte, 1});
    CHECK(whole.last_lines(3) == row.last_three);
    CHECK(by_bytes.last_lines(3) == row.last_three);
  }
}

TEST_CASE("of much text the end is kept, and no line is shown without its beginning") {
  for (const std::size_t piece_lines : {1U, 7U, 20'000U}) {
    OutputTail tail;
    std::string piece;
    for (std::size_t line = 0; line < 20'000; ++line) {
      piece += "line " + std::to_string(line) + "\n";
      if ((line + 1) % piece_lines == 0) tail.feed(std::exchange(piece, ""));
    }
    tail.feed(piece);
    CHECK(tail.last_lines(2) == Lines{"line 19998", "line 19999"});
    const Lines many = tail.last_lines(100'000);
    CHECK(many.size() > 500);
    CHECK(many.front() == "line " + std::to_string(20'000 - many.size()));
  }
}

TEST_CASE("a long line is cut, and one longer than the memory still shows") {
  OutputTail tail;
  tail.feed(std::string(2000, 'x') + "\nend\n");
  CHECK(tail.last_lines(5) == Lines{std::string(OutputTail::kMaxLineBytes, 'x') + " ...", "end"});
  tail.feed(std::string(100'000, 'y'));
  CHECK(tail.last_lines(5) == Lines{std::string(OutputTail::kMaxLineBytes, 'y') + " ..."});
}

}  // namespace
}  // namespace hvd::launcher

#include "launcher/output/output_stream.h"

#include <cmath>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {

namespace {

TEST_CASE("a rank's folder is padded to the width of the largest rank") {
  CHECK(output_path("d", 0, 1, "stdout") == "d/rank.0/stdout");
  CHECK(output_path("d", 9, 10, "stdout") == "d/rank.9/stdout");
  CHECK(output_path("d", 9, 11, "stderr") == "d/rank.09/stderr");
  CHECK(output_path("d", 7, 1001, "stderr") == "d/rank.0007/stderr");
  CHECK(output_path("d", 7, 11, "stderr", "server") == "d/server.07/stderr");
  CHECK(output_path("d", 10, 2, "stdout") == "d/rank.10/stdout");  // of an elastic job
}

TEST_CASE("a file that cannot be written is named") {
  try {
    open_output_file("/dev/null/rank.0/stdout");
    FAIL("no error");
  } catch (const InvalidArgument& error) {
    CHECK(std::string(error.what()).find("/dev/null/rank.0") != std::string::npos);
  }
}

// What has come out after each piece.
std::vector<std::string> feed_all(LineSplitter& splitter, const std::vector<std::string>& pieces) {
  std::vector<std::string> outputs;
  for (const std::string& piece : pieces) splitter.feed(piece, outputs.emplace_back());
  return outputs;
}

TEST_CASE("only complete lines come out") {
  struct Row {
    std::vector<std::string> pieces, outputs;
    std::string rest;
  };
  const Row rows[] = {
      {{"a\n"}, {"a\n"}, ""},
      {{"a"}, {""}, "a"},
      {{"a", "b\nc", "\n"}, {"", "ab\n", "c\n"}, ""},
      {{"a\nb\nc"}, {"a\nb\n"}, "c"},
      {{"\n\n"}, {"\n\n"}, ""},
      {{"a\r\nb\r\n"}, {"a\r\nb\r\n"}, ""},
      {{std::string("\0x\n", 3)}, {std::string("\0x\n", 3)}, ""},
  };
  for (const Row& row : rows) {
    LineSplitter splitter(nullptr);
    CHECK(feed_all(splitter, row.pieces) == row.outputs);
    CHECK(splitter.has_partial() == !row.rest.empty());
    std::string rest;
    splitter.flush(rest);
    CHECK(rest == row.rest);
    CHECK_FALSE(splitter.has_partial());
  }
}

TEST_CASE("every line is tagged once") {
  struct Row {
    std::vector<std::string> pieces, outputs;
  };
  const Row rows[] = {
      {{"a\nb\n"}, {"[1] a\n[1] b\n"}},
      {{"a", "b\n"}, {"", "[1] ab\n"}},
      {{"10%\r20%\r", "\n"}, {"", "[1] 20%\n"}},
      {{"a\r\nb\r\n"}, {"[1] a\r\n[1] b\r\n"}},
      {{"a\r", "\nb\n"}, {"", "[1] a\r\n[1] b\n"}},
      {{"a\n", "\n"}, {"[1] a\n", "[1] \n"}},
  };
  for (const Row& row : rows) {
    LineSplitter splitter([] { return std::string("[1] "); });
    CHECK(feed_all(splitter, row.pieces) == row.outputs);
  }
}

TEST_CASE("of a line that is overwritten the last state comes out") {
  struct Row {
    std::vector<std::string> pieces, outputs;
    std::string state, rest;
  };
  const Row rows[] = {
      {{"\r 10%", "\r 20%", "\n"}, {"", "", " 20%\n"}, "", ""},
      {{"10%\r", "20%\r"}, {"", ""}, "20%", "20%\n"},
      {{"10%\r", "20%\r", "\n"}, {"", "", "20%\n"}, "", ""},
      {{"10%\r", "2"}, {"", ""}, "2", "2\n"},  // as a terminal shows it, but for the rest of the longer state
      {{"\r10%\r20%\nb\r"}, {"20%\n"}, "b", "b\n"},
      {{"\r 10%", "\r    \r", "message\n", "\r 20%"}, {"", "", "message\n", ""}, " 20%", " 20%\n"},
      {{"\r 10%", "\r    \r"}, {"", ""}, "", ""},  // a bar that was cleared
      {{"\r", "\r"}, {"", ""}, "", ""},
      {{"\r\r\n"}, {"\n"}, "", ""},
  };
  for (const Row& row : rows) {
    LineSplitter splitter(nullptr);
    CAPTURE(row.pieces);
    CHECK(feed_all(splitter, row.pieces) == row.outputs);
    CHECK_FALSE(splitter.has_partial());
    CHECK(splitter.last_state() == row.state);
    std::string rest;
    splitter.flush(rest);
    CHECK(rest == row.rest);
    CHECK_FALSE(splitter.is_overwritten());
  }
}

TEST_CASE("a state has a tag, and what was shown before as a prompt stays") {
  LineSplitter splitter([] { return std::string("[1] "); });
  std::string out;
  splitter.feed("10%", out);
  splitter.flush(out);
  splitter.feed("\r20%", out);
  CHECK(out == "[1] 10%\n");
  CHECK(splitter.last_state() == "[1] 20%");
  splitter.feed("\n", out);
  CHECK(out == "[1] 10%\n[1] 20%\n");
}

TEST_CASE("a bar without end does not fill the memory") {
  LineSplitter splitter(nullptr);
  std::string out;
  for (int i = 0; i < 100'000; ++i) splitter.feed("\r" + std::string(100, 'x'), out);
  splitter.flush(out);
  CHECK(out == std::string(100, 'x') + "\n");
}

TEST_CASE("a line that was shown in part goes on without a second tag") {
  LineSplitter splitter([] { return std::string("[1] "); });
  std::string out;
  splitter.feed("(Pdb) ", out);
  CHECK(out.empty());
  splitter.flush(out);
  splitter.flush(out);
  splitter.feed("x\ny\n", out);
  CHECK(out == "[1] (Pdb) x\n[1] y\n");
}

TEST_CASE("a tagged line ends with its stream, so that another rank's tag begins a line") {
  struct Row {
    const char *bytes, *tagged, *plain;
  };
  const Row rows[] = {
      {"a\nb", "[1] a\n[1] b\n", "a\nb"}, {"a\n", "[1] a\n", "a\n"}, {"1%\r2%", "[1] 2%\n", "2%\n"}, {"", "", ""}};
  for (const Row& row : rows) {
    LineSplitter tagged([] { return std::string("[1] "); }), plain(nullptr);
    std::string of_tagged, of_plain;
    tagged.feed(row.bytes, of_tagged);
    tagged.end(of_tagged);
    plain.feed(row.bytes, of_plain);
    plain.end(of_plain);
    CHECK(of_tagged == row.tagged);
    CHECK(of_plain == row.plain);
  }
}

TEST_CASE("a line without end does not fill the memory") {
  LineSplitter splitter(nullptr);
  const std::string piece(100'000, 'x');
  std::string out;
  std::size_t fed = 0;
  for (; fed < 3 * LineSplitter::kMaxPartial; fed += piece.size()) {
    splitter.feed(piece, out);
    CHECK(fed + piece.size() - out.size() <= LineSplitter::kMaxPartial);
  }
  splitter.flush(out);
  CHECK(out == std::string(fed, 'x'));
}

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
  OutputTail of_characters;  // of two bytes each, the last of which does not fit
  std::string line = "x";
  while (line.size() < 2 * OutputTail::kMaxLineBytes) line += "\xc3\xbc";
  of_characters.feed(line);
  CHECK(of_characters.last_lines(1) == Lines{line.substr(0, OutputTail::kMaxLineBytes - 1) + " ..."});
}

TEST_CASE("a tag names rank and stream, and its colour ends with it") {
  CHECK(output_tag(3, Stream::output, false) == "[3]<stdout>:");
  CHECK(output_tag(12, Stream::errors, false) == "[12]<stderr>:");
  CHECK(output_tag(1, Stream::errors, false, "server ") == "[server 1]<stderr>:");
  const std::string begin = "\x1b[38;5;" + std::to_string(colour_of_rank(12)) + "m";
  CHECK(output_tag(12, Stream::errors, true) == begin + "[12]<stderr>:\x1b[39m");
}

TEST_CASE("the environment decides whether there are colours") {
  struct Row {
    const char *terminal, *no_color;
    bool allowed;
  };
  const Row rows[] = {{"xterm-256color", "", true},   {"linux", "", true}, {"xterm-256color", "1", false},
                      {"xterm-256color", "0", false}, {"dumb", "", false}, {"", "", false}};
  for (const Row& row : rows) {
    INFO("TERM=" << row.terminal << " NO_COLOR=" << row.no_color);
    CHECK(allows_colours(row.terminal, row.no_color) == row.allowed);
  }
}

// Of light between 0 and 1, as the Web Content Accessibility Guidelines define it.
double luminance(int colour) {
  constexpr int kLevels[] = {0, 95, 135, 175, 215, 255};
  const int cell = colour - 16;
  REQUIRE(cell >= 0);
  REQUIRE(cell < 6 * 6 * 6);
  const auto linear = [](int level) {
    const double value = level / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(kLevels[cell / 36]) + 0.7152 * linear(kLevels[cell / 6 % 6]) +
         0.0722 * linear(kLevels[cell % 6]);
}

TEST_CASE("colours can be read on black and on white, and neighbours told apart") {
  std::set<int> different;
  for (int rank = 0; rank < 8; ++rank) {
    const double light = luminance(colour_of_rank(rank)) + 0.05;
    INFO("rank " << rank);
    CHECK(light / 0.05 > 3.5);  // 3 is asked for; no colour reaches more than 4.6 to both
    CHECK(1.05 / light > 3.5);
    different.insert(colour_of_rank(rank));
    CHECK(colour_of_rank(rank + 8) == colour_of_rank(rank));
  }
  CHECK(different.size() == 8);
}

}  // namespace

}  // namespace hvd::launcher

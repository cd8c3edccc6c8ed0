#include "launcher/output/bars.h"

#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

constexpr Bars::Terminal kWide{.columns = 80, .rows = 24};

Bars bars_of(const std::vector<std::pair<int, std::string>>& given) {
  Bars bars;
  for (const auto& [place, text] : given) bars.set(place, text);
  return bars;
}

TEST_CASE("bars stand below each other in the order of their places") {
  Bars bars = bars_of({{2, "b"}, {0, "a"}});
  CHECK(bars.erase().empty());
  CHECK(bars.draw(kWide) == "a\nb");
  CHECK(bars.erase() == "\r\x1b[1A\x1b[J");
  CHECK(bars.erase().empty());
  bars.set(2, "");
  CHECK(bars.draw(kWide) == "a");
  CHECK(bars.erase() == "\r\x1b[J");
  bars.set(0, "");
  CHECK(bars.empty());
  CHECK(bars.draw(kWide).empty());
  CHECK(bars.erase().empty());
}

TEST_CASE("a bar takes one line of the terminal") {
  struct Row {
    std::string text, drawn;
  };
  const Row rows[] = {
      {"123456789", "123456789"},
      {"1234567890", "123456789"},
      {"\xe2\x96\x88\xe2\x96\x88"
       "34567890",
       "\xe2\x96\x88\xe2\x96\x88"
       "3456789"},
      {"\x1b[31m12345\x1b[0m6789", "\x1b[31m12345\x1b[0m6789"},
      {"\x1b[31m1234567890\x1b[0m", "\x1b[31m123456789\x1b[0m"},
      {"\x1b[A12\x1b[K3\t4", "1234"},
      {"12\x1b[3", "12[3"},
  };
  for (const Row& row : rows) CHECK(bars_of({{0, row.text}}).draw({.columns = 10, .rows = 24}) == row.drawn);
}

TEST_CASE("bars that do not fit are counted") {
  const Bars three = bars_of({{0, "a"}, {1, "b"}, {2, "c"}});
  CHECK(Bars(three).draw({.columns = 80, .rows = 4}) == "a\nb\nc");
  CHECK(Bars(three).draw({.columns = 80, .rows = 3}) == "a\nand 2 more");
  CHECK(Bars(three).draw({.columns = 80, .rows = 1}) == "and 3 more");
  Bars bars(three);
  bars.draw({.columns = 80, .rows = 3});
  CHECK(bars.erase() == "\r\x1b[1A\x1b[J");
}

}  // namespace
}  // namespace hvd::launcher

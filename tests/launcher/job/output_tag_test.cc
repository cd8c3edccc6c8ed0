#include "launcher/job/output_tag.h"

#include <cmath>
#include <set>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a tag names rank and stream, and its colour ends with it") {
  CHECK(output_tag(3, Stream::output, false) == "[3]<stdout>: ");
  CHECK(output_tag(12, Stream::errors, false) == "[12]<stderr>: ");
  const std::string begin = "\x1b[38;5;" + std::to_string(colour_of_rank(12)) + "m";
  CHECK(output_tag(12, Stream::errors, true) == begin + "[12]<stderr>:\x1b[39m ");
}

TEST_CASE("the environment decides whether there are colours") {
  struct Row {
    Environment environment;
    bool allowed;
  };
  const Row rows[] = {
      {{{"TERM", "xterm-256color"}}, true},
      {{{"TERM", "linux"}, {"NO_COLOR", ""}}, true},
      {{{"TERM", "xterm-256color"}, {"NO_COLOR", "1"}}, false},
      {{{"TERM", "xterm-256color"}, {"NO_COLOR", "0"}}, false},
      {{{"TERM", "dumb"}}, false},
      {{{"TERM", ""}}, false},
      {{}, false},
  };
  for (const Row& row : rows) {
    INFO(row.environment.size() << " variables");
    CHECK(allows_colours(row.environment) == row.allowed);
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

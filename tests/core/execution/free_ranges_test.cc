#include "core/execution/free_ranges.h"

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("free ranges: the first that is long enough, aligned") {
  FreeRanges ranges(1000);
  CHECK(ranges.take(100, 1) == 0u);
  CHECK(ranges.take(100, 128) == 128u);
  CHECK(ranges.take(28, 1) == 100u);  // what alignment has left
  CHECK(!ranges.take(900, 1));
  CHECK(!ranges.take(700, 512));
  CHECK(ranges.take(772, 4) == 228u);
  CHECK(!ranges.take(1, 1));
}

TEST_CASE("free ranges: neighbours become one again") {
  FreeRanges ranges(300);
  for (const std::size_t offset : {0u, 100u, 200u}) REQUIRE(ranges.take(100, 1) == offset);
  const auto first = ranges.give_back(0), last = ranges.give_back(200), middle = ranges.give_back(100);
  CHECK((first.begin == 0 && first.end == 100));
  CHECK((last.begin == 200 && last.end == 300));
  CHECK((middle.begin == 0 && middle.end == 300));
  CHECK(ranges.all_free());
  CHECK(ranges.take(300, 1) == 0u);
}

TEST_CASE("free ranges: only what was taken is taken") {
  FreeRanges ranges(300);
  REQUIRE(ranges.take(100, 1) == 0u);
  CHECK(ranges.taken_at(0) == 100u);
  CHECK(!ranges.taken_at(50));
  CHECK(!ranges.taken_at(100));
  ranges.give_back(0);
  CHECK(!ranges.taken_at(0));
}

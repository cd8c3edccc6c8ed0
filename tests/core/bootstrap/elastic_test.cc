#include "core/bootstrap/elastic.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("places in an elastic job are read as they were written") {
  const EpochPlace place{.epoch = 3, .rank = 1, .size = 4, .has_newcomers = true};
  CHECK(parse_place(encode_place(place)) == place);
  const ExpectedRank expected_rank{.size = 5, .local_rank = 1, .local_size = 3, .cross_rank = 2, .cross_size = 4};
  CHECK(parse_expected_rank(encode_expected_rank(expected_rank)) == expected_rank);
  CHECK(parse_expected_rank(encode_expected_rank({})) == ExpectedRank());
}

TEST_CASE("what is no place in an elastic job is refused") {
  for (const char* text : {"", "1", "1 0 4", "x 0 4 0", "1 4 4 0", "1 -1 4 0", "-1 0 4 0"}) {
    CHECK_THROWS_AS(parse_place(text), Internal);
  }
  for (const char* text : {"", "5 0 1 0", "-1 0 1 0 1", "5 1 1 0 1", "5 0 1 1 1", "5 -1 1 0 1", "5 0 1 x 1"}) {
    CHECK_THROWS_AS(parse_expected_rank(text), Internal);
  }
}

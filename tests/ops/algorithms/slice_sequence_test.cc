#include "ops/algorithms/slice_sequence.h"

#include <utility>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

using Bounds = std::vector<std::int64_t>;
using Parts = std::vector<std::pair<std::int64_t, std::int64_t>>;

Parts parts(const SliceSequence& sequence, std::int64_t from, std::int64_t to) {
  Parts found;
  sequence.for_each_part(from, to, [&](std::int64_t begin, std::int64_t end) { found.emplace_back(begin, end); });
  return found;
}

}  // namespace

TEST_CASE("slices come from the first one down and round, each forwards") {
  const Bounds bounds{0, 10, 10, 13, 20};
  const SliceSequence sequence(bounds, 2);  // slices 2, 1 (empty), 0, 3
  CHECK(sequence.elements() == 20);
  CHECK(parts(sequence, 0, 20) == Parts{{10, 13}, {0, 10}, {13, 20}});
  CHECK(parts(sequence, 0, 3) == Parts{{10, 13}});
  CHECK(parts(sequence, 2, 5) == Parts{{12, 13}, {0, 2}});
  CHECK(parts(sequence, 13, 14) == Parts{{13, 14}});
  CHECK(parts(sequence, 5, 5).empty());
  CHECK(sequence.up_to(10, 11) == 1);
  CHECK(sequence.up_to(10, 13) == 3);
  CHECK(sequence.up_to(0, 10) == 13);
  CHECK(sequence.up_to(4, 7) == 10);
  CHECK(sequence.up_to(13, 20) == 20);
}

TEST_CASE("from any slice on, every element comes once, and up_to counts them") {
  const Bounds bounds{0, 4, 4, 9, 9, 10};
  for (int first = 0; first < 5; ++first) {
    CAPTURE(first);
    const SliceSequence sequence(bounds, first);
    std::vector<int> seen(10, 0);
    for (std::int64_t at = 0; at < 10; ++at) {
      const Parts one = parts(sequence, at, at + 1);
      REQUIRE(one.size() == 1);
      ++seen[static_cast<std::size_t>(one[0].first)];
      CHECK(sequence.up_to(one[0].first, one[0].second) == at + 1);
    }
    CHECK(seen == std::vector<int>(10, 1));
  }
}

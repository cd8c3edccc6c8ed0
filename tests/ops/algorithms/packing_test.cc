#include "ops/algorithms/packing.h"

#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

using Counts = std::vector<std::int64_t>;

Counts bounds_of(const SliceLayout& layout) {
  return Counts(layout.slice_bounds().begin(), layout.slice_bounds().end());
}

using Bounds = std::vector<std::int64_t>;
using Parts = std::vector<std::pair<std::int64_t, std::int64_t>>;

Parts parts(const SliceSequence& sequence, std::int64_t from, std::int64_t to) {
  Parts found;
  sequence.for_each_part(from, to, [&](std::int64_t begin, std::int64_t end) { found.emplace_back(begin, end); });
  return found;
}

}  // namespace

TEST_CASE("slices have equal sizes, the first ones one element more") {
  struct Case {
    Counts elements;
    int slices;
    Counts bounds;
  };
  const auto c = GENERATE(values<Case>({
      {{}, 3, {0, 0, 0, 0}},
      {{0}, 2, {0, 0, 0}},
      {{5}, 1, {0, 5}},
      {{5}, 2, {0, 3, 5}},
      {{6}, 3, {0, 2, 4, 6}},
      {{1}, 4, {0, 1, 1, 1, 1}},
      {{5, 2}, 2, {0, 4, 7}},
      {{1, 1, 1}, 2, {0, 3, 3}},
      {{4, 0, 3}, 3, {0, 3, 5, 7}},
      {{std::int64_t{5} << 32}, 2, {0, std::int64_t{5} << 31, std::int64_t{5} << 32}},
  }));
  CAPTURE(c.elements, c.slices);
  const auto layout = SliceLayout::balanced(c.elements, c.slices);
  CHECK(bounds_of(layout) == c.bounds);
  CHECK(layout.total_elements() == c.bounds.back());
}

TEST_CASE("parts tile each piece in order and the packed buffer slice by slice") {
  const Counts elements{7, 0, 1, 1000, 16, 5};
  for (const int slices : {1, 2, 3, 8, 13}) {
    CAPTURE(slices);
    const auto layout = SliceLayout::balanced(elements, slices);
    Counts reached(elements.size(), 0);
    std::int64_t packed = 0;
    for (int slice = 0; slice < slices; ++slice) {
      CHECK(layout.slice_bounds()[static_cast<std::size_t>(slice)] == packed);
      for (std::size_t piece = 0; piece < elements.size(); ++piece) {
        const auto& part = layout.part(slice, piece);
        CHECK(part.offset == reached[piece]);
        CHECK(part.packed_offset == packed);
        reached[piece] += part.count;
        packed += part.count;
      }
    }
    CHECK(reached == elements);
  }
}

TEST_CASE("an element's slice does not depend on what else is packed") {
  const auto alone = SliceLayout::balanced(Counts{1000}, 7);
  const auto fused = SliceLayout::balanced(Counts{3, 1000, 12345}, 7);
  for (int slice = 0; slice < 7; ++slice) {
    CHECK(alone.part(slice, 0).offset == fused.part(slice, 1).offset);
    CHECK(alone.part(slice, 0).count == fused.part(slice, 1).count);
  }
}

TEST_CASE("given counts are kept") {
  const std::vector<Counts> counts{{2, 0, 3}, {1, 1, 1}};
  const auto layout = SliceLayout::with_counts(counts, 3);
  CHECK(bounds_of(layout) == Counts{0, 3, 4, 8});
  CHECK(layout.part(2, 0).offset == 2);
  CHECK(layout.part(2, 0).packed_offset == 4);
  CHECK(layout.part(2, 1).offset == 2);
  CHECK(layout.part(2, 1).packed_offset == 7);
}

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

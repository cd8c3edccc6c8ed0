#include "ops/algorithms/slice_layout.h"

#include <vector>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

using Counts = std::vector<std::int64_t>;

Counts bounds_of(const SliceLayout& layout) {
  return Counts(layout.slice_bounds().begin(), layout.slice_bounds().end());
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

#include "core/tuning/knobs.h"

#include "tests/core/tuning/simulated_job.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("What is tried for a knob: powers of two times its default") {
  constexpr std::int64_t kKilo = 1 << 10;
  constexpr std::int64_t kMega = 1 << 20;
  struct Row {
    const char* what;
    std::int64_t Knobs::*knob;
    std::int64_t by_default;
    std::vector<std::int64_t> values;
  };
  const Row rows[] = {
      {"fusion", &Knobs::fusion_threshold_bytes, 64 * kMega, {4 * kMega, 16 * kMega, 64 * kMega, 256 * kMega}},
      {"no fusion", &Knobs::fusion_threshold_bytes, 0, {0, kMega, 2 * kMega, 4 * kMega}},
      {"coalescing", &Knobs::coalescing_us, 100, {25, 50, 100, 200}},
      {"no coalescing", &Knobs::coalescing_us, 0, {0, 32, 64, 128}},
      {"chunks", &Knobs::chunk_bytes, 256 * kKilo, {64 * kKilo, 128 * kKilo, 256 * kKilo, 512 * kKilo}},
      {"pages are not divided", &Knobs::chunk_bytes, 12 * kKilo, {4 * kKilo, 12 * kKilo, 24 * kKilo}},
      {"the smallest chunk", &Knobs::chunk_bytes, 4 * kKilo, {4 * kKilo, 8 * kKilo}},
      {"tiny", &Knobs::fusion_threshold_bytes, 1, {1, 4}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Knobs defaults = kDefaults;
    defaults.*row.knob = row.by_default;
    const KnobRange range = range_around(row.knob, defaults);
    CHECK(range.knob == row.knob);
    CHECK(range.values == row.values);
  }
}

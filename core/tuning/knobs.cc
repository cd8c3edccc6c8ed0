#include "core/tuning/knobs.h"

#include <algorithm>
#include <array>

namespace hvd {

namespace {

constexpr std::size_t kTried = 4;  // values of a knob: a race among them takes six samples

struct Spread {
  std::int64_t Knobs::*knob;
  std::array<int, kTried> shifts;
  std::int64_t from_zero;  // the smallest nonzero value if the default is zero
  std::int64_t granule;
};

// Larger chunks fall out of the L2 cache and cost much more than they can gain: one step upwards is enough.
const Spread kSpreads[] = {
    {&Knobs::fusion_threshold_bytes, {-4, -2, 0, 2}, 1 << 20, 1},
    {&Knobs::coalescing_us, {-2, -1, 0, 1}, 32, 1},
    {&Knobs::chunk_bytes, {-2, -1, 0, 1}, 64 << 10, 4096},
};

std::int64_t shifted(std::int64_t value, int shift) { return shift < 0 ? value >> -shift : value << shift; }

}  // namespace

KnobRange range_around(std::int64_t Knobs::*knob, const Knobs& defaults) {
  const Spread& spread = *std::find_if(std::begin(kSpreads), std::end(kSpreads),
                                       [&](const Spread& candidate) { return candidate.knob == knob; });
  const std::int64_t middle = defaults.*knob;
  KnobRange range{knob, {middle}};
  for (std::size_t i = 0; i < kTried; ++i) {
    if (middle == 0) {
      if (i > 0) range.values.push_back(shifted(spread.from_zero, static_cast<int>(i) - 1));
    } else {
      const std::int64_t value = shifted(middle, spread.shifts[i]) / spread.granule * spread.granule;
      if (value > 0) range.values.push_back(value);
    }
  }
  std::sort(range.values.begin(), range.values.end());
  range.values.erase(std::unique(range.values.begin(), range.values.end()), range.values.end());
  return range;
}

}  // namespace hvd

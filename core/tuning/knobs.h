// The settings that may change while a job runs without changing any result's bits, and the values to try. Values only.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

struct Knobs {
  std::int64_t fusion_threshold_bytes = 0;
  std::int64_t coalescing_us = 0;  // microseconds for which an answer may wait for more tensors
  std::int64_t chunk_bytes = 0;

  friend bool operator==(const Knobs&, const Knobs&) = default;
};

struct KnobRange {
  std::int64_t Knobs::*knob = nullptr;
  std::vector<std::int64_t> values;  // ascending, each once
};

// The values to try: powers of two times the knob's default, which is among them; for a default of zero, zero and a few
// small values. Chunks are multiples of 4096 bytes.
KnobRange range_around(std::int64_t Knobs::*knob, const Knobs& defaults);

}  // namespace hvd

// The settings that may change while a job runs without changing any result's bits. Values only.
#pragma once

#include <cstdint>

namespace hvd {

struct Knobs {
  std::int64_t fusion_threshold_bytes = 0;
  std::int64_t coalescing_us = 0;  // microseconds for which an answer may wait for more tensors
  std::int64_t chunk_bytes = 0;

  friend bool operator==(const Knobs&, const Knobs&) = default;
};

}  // namespace hvd

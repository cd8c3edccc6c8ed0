// Chooses how many bytes of small tensors to reduce together: a larger bucket costs less per byte, but starts later,
// and cannot be overtaken. Pure; the same on every rank.
#pragma once

#include <cstdint>

#include "ops/choice/algorithm_table.h"

namespace hvd {

// Inside a host, costs per byte do not fall any further above this (measured: 160 gradients of 102 MB at 2 ranks take
// 18.8 ms in buckets of 8 MiB and 21.4 ms in buckets of 64 MiB, which exceed the caches).
inline constexpr std::int64_t kHostBucketBytes = std::int64_t{8} << 20;
inline constexpr std::int64_t kMaxBucketBytes = std::int64_t{64} << 20;

// Between `ranks` ranks: the size above which a byte costs hardly more than in the largest bucket.
std::int64_t bucket_bytes(AllreduceChoice& choice, int ranks);

}  // namespace hvd

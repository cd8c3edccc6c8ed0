// The sizes of tensors with which the whole stack is tested.
#pragma once

#include <cstdint>
#include <vector>

#include "core/config.h"

namespace hvd::testing {

// Small chunks, so that "spans several chunks" is cheap.
inline const Environment kSmallChunks = {{"HVD_CHUNK_BYTES", "4096"}};
inline const std::vector<std::int64_t> kSizes = {0, 1, 3, 1000, 9001};

}  // namespace hvd::testing

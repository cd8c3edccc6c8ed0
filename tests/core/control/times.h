// Points in time for tests that pass the time as an argument.
#pragma once

#include "core/base/clock.h"

namespace hvd {

inline constexpr TimePoint kStart{1000s};

// How long messages are held back for others to join them.
inline constexpr Duration kDelay = 100ms;

}  // namespace hvd

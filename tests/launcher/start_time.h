// The time at which the events of a test begin.
#pragma once

#include "core/base/clock.h"

namespace hvd::launcher {

inline constexpr TimePoint kStart{};

}  // namespace hvd::launcher

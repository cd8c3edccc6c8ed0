// When what a test tells of begins.
#pragma once

#include "core/base/clock.h"

namespace hvd::launcher {

inline constexpr TimePoint kStart{};

}  // namespace hvd::launcher

// A check inside a rank's thread, where Catch2's macros do not belong. Its words cost nothing while it holds.
#pragma once

#include "core/base/error.h"

namespace hvd::testing {

inline void require(bool condition, const char* what) {
  if (!condition) throw Internal(what);
}

}  // namespace hvd::testing

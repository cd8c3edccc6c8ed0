// A check for ranks' threads, where Catch2's macros must not be used. Its message is only built if it fails.
#pragma once

#include "core/base/error.h"

namespace hvd::testing {

inline void require(bool condition, const char* what) {
  if (!condition) throw Internal(what);
}

}  // namespace hvd::testing

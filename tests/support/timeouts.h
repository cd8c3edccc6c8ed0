// The time limits of tests, as in timeouts.py, for C++. The test cases carry the tag [timed].
#pragma once

#include <cstdlib>
#include <string_view>

#include "core/base/clock.h"

namespace hvd::testing {

// Whether the machine is the test's own, so that times mean something.
inline bool exact_times() {
  const char* exact = std::getenv("TEST_EXACT_TIMES");
  return exact != nullptr && std::string_view(exact) == "1";
}

inline Duration at_most(Duration limit) { return exact_times() ? limit : limit + 20s; }

}  // namespace hvd::testing

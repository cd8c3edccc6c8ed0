// How long things may take in a test: patience.py, for C++. The test cases carry the tag [timed].
#pragma once

#include <cstdlib>
#include <string_view>

#include "core/base/clock.h"

namespace hvd::testing {

inline Duration at_most(Duration limit) {
  const char* exact = std::getenv("TEST_EXACT_TIMES");
  return exact != nullptr && std::string_view(exact) == "1" ? limit : limit + 20s;
}

}  // namespace hvd::testing

#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "core/base/error.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

// On a rank: the body fails as a wrong call does, with these words.
inline void require_refused(const std::function<void()>& body, const std::string& words) {
  try {
    body();
  } catch (const Error& error) {
    require(error.code() == StatusCode::invalid_argument, error.what());
    require(std::string(error.what()).find(words) != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("nothing was refused; expected: " + words);
}

}  // namespace hvd::testing

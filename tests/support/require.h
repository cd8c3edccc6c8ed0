// A check for ranks' threads, where Catch2's macros must not be used.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>

namespace hvd::testing {

// Throws std::runtime_error(what) unless condition.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// For loops over elements: the text is only made where it is needed.
template <std::invocable Describe>
void require(bool condition, const Describe& describe) {
  if (!condition) throw std::runtime_error(describe());
}

}  // namespace hvd::testing

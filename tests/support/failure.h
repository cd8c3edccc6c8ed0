// Describes a failure as one text, in which tests can search.
#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"

namespace hvd::testing {

// "timeout: what was waited for" of the Error that it throws; empty if it throws none.
inline std::string failure(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(status_code_name(error.code())) + ": " + error.what();
  }
  return "";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace hvd::testing

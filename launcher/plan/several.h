// Formats a count for messages: "1 rank", "2 ranks".
#pragma once

#include <concepts>
#include <string>

namespace hvd::launcher {

std::string several(std::integral auto count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace hvd::launcher

// For whoever has mistyped a name. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// The name that differs least from what was typed, by letters put in, left out, replaced or swapped with their
// neighbours (the distance of Damerau and Levenshtein, in its restricted form); the first of several. Empty if they all
// differ by more than a third of what was typed.
std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names);

}  // namespace hvd::launcher

// Finds the name that a user who mistyped it may have meant. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// Returns the name with the least restricted Damerau-Levenshtein distance (insertions, deletions, substitutions and
// transpositions of adjacent letters) to `typed`; the first of several. Empty if all distances exceed a third of the
// length of `typed`.
std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& names);

}  // namespace hvd::launcher

// Compares names, to find the one that a user who mistyped it may have meant. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace hvd {

// The restricted Damerau-Levenshtein distance: the number of insertions, deletions, substitutions and transpositions of
// adjacent letters that turn one name into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace hvd

// Names of operations that were given none; see named_submissions.h for who gets which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

inline constexpr std::string_view kMadeUp = "unnamed.";

// Counted: it does not come again, or not before all have joined.
inline std::string counted_name(std::uint64_t number) { return std::string(kMadeUp) + std::to_string(number); }

// Of one that its caller waits for, after so many counted ones: a loop of them has one name.
inline std::string waited_name(std::uint64_t number) {
  return std::string(kMadeUp) + "after." + std::to_string(number);
}

inline bool is_counted(std::string_view name) {
  return name.size() > kMadeUp.size() && name.starts_with(kMadeUp) && name[kMadeUp.size()] >= '0' &&
         name[kMadeUp.size()] <= '9';
}

}  // namespace hvd

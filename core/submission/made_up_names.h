// Names of operations that were given none; see named_submissions.h for who gets which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

inline constexpr std::string_view kMadeUp = "unnamed.";

// After a join that was given up, of which there were so many, the numbers start anew beside those of before it: ranks
// that have not come to it yet are still at those.
inline std::string suffix_after(std::uint64_t failed_joins) {
  return failed_joins == 0 ? std::string() : ".after.join." + std::to_string(failed_joins);
}

// Counted: it does not come again, or not before all have joined.
inline std::string counted_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kMadeUp) + std::to_string(number) + suffix_after(failed_joins);
}

// Of one that its caller waits for, after so many counted ones: a loop of them has one name.
inline std::string waited_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kMadeUp) + "after." + std::to_string(number) + suffix_after(failed_joins);
}

inline bool is_made_up(std::string_view name) { return name.starts_with(kMadeUp); }

inline bool is_counted(std::string_view name) {
  return name.size() > kMadeUp.size() && name.starts_with(kMadeUp) && name[kMadeUp.size()] >= '0' &&
         name[kMadeUp.size()] <= '9';
}

}  // namespace hvd

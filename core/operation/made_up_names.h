// Names that hvd generates for operations without one; named_submissions.h assigns them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

inline constexpr std::string_view kMadeUp = "unnamed.";

// After joins that were given up, numbering restarts with a suffix that counts them: ranks that have not come to that
// join yet still use the numbers before it.
inline std::string suffix_after(std::uint64_t failed_joins) {
  return failed_joins == 0 ? std::string() : ".after.join." + std::to_string(failed_joins);
}

// A name that does not repeat, or not before all ranks have joined.
inline std::string counted_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kMadeUp) + std::to_string(number) + suffix_after(failed_joins);
}

// The name of a synchronous operation after so many counted ones: all operations of a loop share it.
inline std::string waited_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kMadeUp) + "after." + std::to_string(number) + suffix_after(failed_joins);
}

inline bool is_made_up(std::string_view name) { return name.starts_with(kMadeUp); }

inline bool is_counted(std::string_view name) {
  return name.size() > kMadeUp.size() && name.starts_with(kMadeUp) && name[kMadeUp.size()] >= '0' &&
         name[kMadeUp.size()] <= '9';
}

}  // namespace hvd

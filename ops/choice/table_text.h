// A table of algorithms by size: its ranges, and how it is displayed: sizes, times, lines in columns. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>

namespace hvd {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Messages of `from` or more, but fewer than `to`, bytes use the algorithm.
template <typename Algorithm>
struct SizeRange {
  std::size_t from, to;
  Algorithm algorithm;
};

// Returns the range that contains `bytes`, or null.
template <typename Algorithm>
const SizeRange<Algorithm>* find_range(std::span<const SizeRange<Algorithm>> ranges, std::size_t bytes) {
  for (const SizeRange<Algorithm>& range : ranges) {
    if (range.from <= bytes && bytes < range.to) return &range;
  }
  return nullptr;
}

// Why a range has the algorithm that the user has named.
inline constexpr const char* kWantedReason = "HVD_ALGORITHM says so";

// A line: `name` performs messages of `from` or more, but fewer than `to`, bytes.
struct TableLine {
  std::size_t from = 0, to = kNoLimit;
  std::string name;
  std::string reason;
};

// "112", "64k", "3m": in the format of HVD_ALGORITHM.
std::string size_text(std::size_t bytes);
// "0-64k", "64k-"
std::string range_text(std::size_t from, std::size_t to);
// "31 us", "1.3 ms", "2.5 s": two digits or more.
std::string time_text(double seconds);
// "117 MB/s", "9.3 GB/s"
std::string rate_text(double seconds_per_byte);

// The lines, indented, in columns.
std::string table_text(std::span<const TableLine> lines);

}  // namespace hvd

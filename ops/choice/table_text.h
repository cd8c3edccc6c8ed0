// Formats a table of algorithms for display: sizes, times, lines in columns. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>

namespace hvd {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

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

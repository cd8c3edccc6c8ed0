#include "ops/choice/table_text.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace hvd {

namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// Uses the first unit, each a thousand times the previous one, in which the value is less than a thousand.
std::string scaled(double value, const std::array<const char*, 3>& units) {
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && value >= 999.5; ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, value < 9.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

}  // namespace

std::string size_text(std::size_t bytes) {
  const char* const suffixes[] = {"", "k", "m", "g"};
  std::size_t power = 0;
  for (; power < 3 && bytes > 0 && bytes % 1024 == 0; ++power) bytes /= 1024;
  return std::to_string(bytes) + suffixes[power];
}

std::string range_text(std::size_t from, std::size_t to) {
  return size_text(from) + "-" + (to == kNoLimit ? "" : size_text(to));
}

std::string time_text(double seconds) { return scaled(seconds * 1e6, {"us", "ms", "s"}); }

std::string rate_text(double seconds_per_byte) { return scaled(1e-6 / seconds_per_byte, {"MB/s", "GB/s", "TB/s"}); }

std::string table_text(std::span<const TableLine> lines) {
  std::size_t range_width = 0, name_width = 0;
  for (const TableLine& line : lines) {
    range_width = std::max(range_width, range_text(line.from, line.to).size());
    name_width = std::max(name_width, line.name.size());
  }
  std::string text;
  for (const TableLine& line : lines) {
    text += "  " + padded(range_text(line.from, line.to), range_width) + "  " + padded(line.name, name_width) + "  " +
            line.reason + "\n";
  }
  return text;
}

}  // namespace hvd

#include "core/base/process_stat.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace hvd {

std::optional<ProcessEntry> read_process_stat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  return parse_process_stat(text);
}

std::optional<ProcessEntry> parse_process_stat(std::string_view text) {
  ProcessEntry entry;
  if (std::from_chars(text.data(), text.data() + text.size(), entry.pid).ec != std::errc()) return std::nullopt;
  // The program's name is in parentheses and may contain anything, parentheses too.
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  std::istringstream fields{std::string(text.substr(name_end + 1))};
  char state = 0;
  if (!(fields >> state >> entry.parent >> entry.group)) return std::nullopt;
  std::string skipped;
  for (int field = 6; field < 20; ++field) fields >> skipped;
  int threads = 0;
  fields >> threads;
  entry.zombie = (state == 'Z' || state == 'X') && threads <= 1;
  return entry;
}

}  // namespace hvd

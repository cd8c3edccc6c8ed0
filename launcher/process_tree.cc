#include "launcher/process_tree.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace hvd::launcher {

std::optional<ProcessEntry> parse_process_stat(std::string_view text) {
  ProcessEntry entry;
  if (std::from_chars(text.data(), text.data() + text.size(), entry.pid).ec != std::errc()) return std::nullopt;
  // The program's name stands in parentheses and may hold anything, parentheses too.
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  std::istringstream fields{std::string(text.substr(name_end + 1))};
  char state = 0;
  if (!(fields >> state >> entry.parent >> entry.group)) return std::nullopt;
  entry.zombie = state == 'Z' || state == 'X';
  return entry;
}

std::vector<ProcessEntry> list_processes() {
  std::vector<ProcessEntry> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return result;
  while (const dirent* item = readdir(folder.get())) {
    if (item->d_name[0] < '1' || item->d_name[0] > '9') continue;
    std::ifstream file(std::string("/proc/") + item->d_name + "/stat");
    std::string text;
    std::getline(file, text, '\0');
    if (const auto entry = parse_process_stat(text)) result.push_back(*entry);
  }
  return result;
}

std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except) {
  std::vector<ProcessEntry> result;
  const auto add_children_of = [&](pid_t parent) {
    for (const ProcessEntry& entry : all) {
      const bool excepted = std::find(except.begin(), except.end(), entry.pid) != except.end();
      if (entry.parent == parent && entry.pid != parent && !excepted) result.push_back(entry);
    }
  };
  // The list is no snapshot: with reused pids it may, in theory, hold a cycle. No more entries than there are
  // processes.
  add_children_of(root);
  for (std::size_t next = 0; next < result.size() && result.size() <= all.size(); ++next) {
    add_children_of(result[next].pid);
  }
  return result;
}

}  // namespace hvd::launcher

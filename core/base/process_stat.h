// Reads /proc/<pid>/stat.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace hvd {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool zombie = false;  // the whole process: if only its first thread has ended, it still runs
  bool operator==(const ProcessEntry&) const = default;
};

// Empty if no such process exists, or this process may not see it.
std::optional<ProcessEntry> read_process_stat(pid_t pid);

// Parses the file's text; empty if it is malformed. Pure.
std::optional<ProcessEntry> parse_process_stat(std::string_view text);

}  // namespace hvd

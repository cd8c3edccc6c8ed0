// What /proc/<pid>/stat says of a process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace hvd {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool zombie = false;  // all of it: a process whose first thread alone has ended runs
  bool operator==(const ProcessEntry&) const = default;
};

// Empty: there is no such process, or none that this one can see.
std::optional<ProcessEntry> read_process_stat(pid_t pid);

// The file's text; empty if it is not one. Pure.
std::optional<ProcessEntry> parse_process_stat(std::string_view text);

}  // namespace hvd

// Which processes descend from which, as /proc says. For finding what a job has left behind: read when a job ends,
// never while it runs.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool zombie = false;
  bool operator==(const ProcessEntry&) const = default;
};

// All processes of this machine that /proc shows.
std::vector<ProcessEntry> list_processes();

// The text of /proc/<pid>/stat; empty if it is not one. Pure.
std::optional<ProcessEntry> parse_process_stat(std::string_view text);

// Children, their children, and so on, without the subtrees that begin at a pid in `except`. Pure.
std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except);

}  // namespace hvd::launcher

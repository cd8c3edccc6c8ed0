// Threads of this process, environments, and what the kernel reports on processes and CPUs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace hvd {

using Environment = std::map<std::string, std::string>;

// Parses "NAME=value" entries, as in `environ`.
Environment parse_environment(const char* const* entries);

// Threads of the runtime have names, as shown by ps -L and debuggers. This one is the engine's. Every process of a job
// has one, so other processes recognise by it a process that is in a job.
inline constexpr std::string_view kEngineThread = "hvd-engine";

// Runs `body`, which must not throw, on a new thread; the first 15 bytes of its name are shown. Throws Internal if no
// thread can be created.
std::thread start_thread(std::string_view name, std::function<void()> body);

// A line of /proc/<pid>/stat.
struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool zombie = false;   // the whole process: if only its first thread has ended, it still runs
  bool stopped = false;  // as by SIGSTOP
  bool operator==(const ProcessEntry&) const = default;
};

// Empty if no such process exists, or this process may not see it.
std::optional<ProcessEntry> read_process_stat(pid_t pid);

// Parses the file's text; empty if it is malformed. Pure.
std::optional<ProcessEntry> parse_process_stat(std::string_view text);

// The CPUs by kernel number in this process's affinity mask, one bit each, without trailing zero words.
std::vector<std::uint64_t> allowed_cpus();

// Parses "0-3,8" as the kernel writes it, in ascending order; returns an empty list for malformed text. Pure.
std::vector<int> parse_cpu_numbers(const std::string& text);

}  // namespace hvd

// CPUs by their numbers in the kernel: which this process may run on, and how the kernel lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

// The CPUs in this process's affinity mask, a bit each, without zero words at the end.
std::vector<std::uint64_t> allowed_cpus();

// "0-3,8" as the kernel writes it, ascending there; nothing of a text that it would not write. Pure.
std::vector<int> parse_cpu_numbers(const std::string& text);

}  // namespace hvd

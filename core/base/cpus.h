// CPUs by kernel number: those that this process may run on, and a parser for the kernel's CPU lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

// The CPUs in this process's affinity mask, one bit each, without trailing zero words.
std::vector<std::uint64_t> allowed_cpus();

// Parses "0-3,8" as the kernel writes it, in ascending order; returns an empty list for malformed text. Pure.
std::vector<int> parse_cpu_numbers(const std::string& text);

}  // namespace hvd

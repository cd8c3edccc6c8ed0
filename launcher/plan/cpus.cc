#include "launcher/plan/cpus.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/process.h"

namespace hvd::launcher {
namespace {

std::optional<int> read_number(const std::string& path) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::map<int, int> read_numa_nodes(const std::string& sysfs) {
  std::map<int, int> node_of;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sysfs + "/node", error)) {
    const std::string name = entry.path().filename();
    int node = 0;
    const char* const end = name.data() + name.size();
    if (!name.starts_with("node") || std::from_chars(name.data() + 4, end, node).ptr != end) continue;
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    for (const int cpu : parse_cpu_numbers(list)) node_of[cpu] = node;
  }
  return node_of;
}

}  // namespace

std::vector<Cpu> read_cpus(const std::vector<int>& numbers, const std::string& sysfs) {
  const std::map<int, int> node_of = read_numa_nodes(sysfs);
  std::vector<Cpu> cpus;
  for (const int number : numbers) {
    const std::string topology = sysfs + "/cpu/cpu" + std::to_string(number) + "/topology/";
    const auto node = node_of.find(number);
    // The kernel's core numbers are unique only within a socket.
    cpus.push_back({.number = number,
                    .core = read_number(topology + "core_id").value_or(number),
                    .numa = node == node_of.end() ? 0 : node->second,
                    .socket = read_number(topology + "physical_package_id").value_or(0)});
  }
  const auto place = [](const Cpu& cpu) { return std::tuple(cpu.socket, cpu.numa, cpu.core, cpu.number); };
  std::ranges::sort(cpus, {}, place);
  std::map<std::tuple<int, int, int>, int> cores;
  for (Cpu& cpu : cpus) {
    const auto next = static_cast<int>(cores.size());
    cpu.core = cores.try_emplace({cpu.socket, cpu.numa, cpu.core}, next).first->second;
  }
  return cpus;
}

std::vector<int> allowed_cpu_numbers() {
  const std::vector<std::uint64_t> words = allowed_cpus();
  std::vector<int> numbers;
  for (std::size_t cpu = 0; cpu < words.size() * 64; ++cpu) {
    if ((words[cpu / 64] >> (cpu % 64) & 1) != 0) numbers.push_back(static_cast<int>(cpu));
  }
  return numbers;
}

std::string format_cpu_list(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (first > 0 ? "," : "") + std::to_string(numbers[first]);
    if (last > first) text += "-" + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace hvd::launcher

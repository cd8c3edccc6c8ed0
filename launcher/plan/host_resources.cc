#include "launcher/plan/host_resources.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"

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

constexpr int kMaxGpus = 1024;  // per host

// Splits "0,1" or "GPU-3fa1,MIG-77".
std::vector<std::string> split_devices(std::string_view text) {
  std::vector<std::string> devices;
  while (!text.empty()) {
    const auto comma = text.find(',');
    devices.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return devices;
}

}  // namespace

std::optional<int> number_within(std::string_view text, int least, int most) {
  const auto number = parse_number<int>(text);
  return number && *number >= least && *number <= most ? number : std::nullopt;
}

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

GpusPerRank parse_gpus_per_rank(const std::string& text) {
  if (text == "auto" || text == "AUTO") return {};
  if (const auto number = number_within(text, 1, kMaxGpus)) return {.number = number};
  throw InvalidArgument("--gpus-per-rank " + text + ": a number, or auto");
}

std::vector<int> gpus_of_rank(const GpusPerRank& rule, int local_rank, int local_size, int gpus_on_host,
                              const std::string& host) {
  if (rule.number && static_cast<long>(*rule.number) * local_size > gpus_on_host) {
    throw InvalidArgument("--gpus-per-rank " + std::to_string(*rule.number) + ": " + host + " has " +
                          std::to_string(local_size) + " ranks and " + std::to_string(gpus_on_host) + " GPUs");
  }
  if (gpus_on_host <= 0) return {};
  const int each = rule.number.value_or(std::max(1, gpus_on_host / local_size));
  std::vector<int> gpus;
  for (int i = 0; i < each; ++i) gpus.push_back((local_rank * each + i) % gpus_on_host);
  return gpus;
}

std::string visible_devices(const std::vector<int>& gpus, const std::optional<std::string>& own_value) {
  const std::vector<std::string> own = split_devices(own_value.value_or(""));
  std::string text;
  for (const int gpu : gpus) {
    const auto place = static_cast<std::size_t>(gpu);
    text += (text.empty() ? "" : ",") + (place < own.size() ? own[place] : std::to_string(gpu));
  }
  return text;
}

int count_gpus(const std::optional<std::string>& visible, const std::string& driver) {
  int there = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(driver, error), end; !error && entry != end; entry.increment(error)) {
    ++there;
  }
  if (!visible) return std::min(there, kMaxGpus);
  // CUDA's rule: devices after an invalid one are ignored; -1 is the usual invalid one.
  const std::vector<std::string> listed = split_devices(*visible);
  const auto first_wrong = std::ranges::find_if(listed, [](const std::string& name) { return name.starts_with('-'); });
  return std::min(static_cast<int>(first_wrong - listed.begin()), there == 0 ? 0 : kMaxGpus);
}

std::string local_hostname() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

HostDescription describe_local_host() {
  HostDescription facts;
  facts.hostname = local_hostname();
  facts.resources.cpus = read_cpus(allowed_cpu_numbers());
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_gpus = visible;
  facts.resources.gpus = count_gpus(facts.visible_gpus);
  return facts;
}

}  // namespace hvd::launcher

#include "ops/host/domains.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/base/cpus.h"

namespace hvd {

namespace {

Domains all_in_one(std::size_t ranks) {
  Domains groups(1, std::vector<int>(ranks));
  std::iota(groups[0].begin(), groups[0].end(), 0);
  return groups;
}

// The factor by which less data crosses the domains' borders; no gain if it is at most 1.
double saving(const Domains& groups) {
  std::size_t smallest = groups[0].size();
  for (const auto& group : groups) smallest = std::min(smallest, group.size());
  return groups.size() == 1 ? 1.0 : static_cast<double>(smallest) / static_cast<double>(groups.size());
}

CpuSet read_cpu_list(const std::filesystem::path& file) {
  std::string text;
  std::getline(std::ifstream(file), text);
  return parse_cpu_list(text);
}

std::vector<CpuSet> read_numa_nodes(const std::filesystem::path& nodes) {
  std::vector<CpuSet> domains;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(nodes, none)) {
    const CpuSet cpus = read_cpu_list(entry.path() / "cpulist");
    if (entry.path().filename().string().starts_with("node") && cpus.any()) domains.push_back(cpus);
  }
  return domains;
}

std::vector<CpuSet> read_last_caches(const CpuSet& cpus, const std::filesystem::path& sysfs) {
  std::vector<CpuSet> domains;
  CpuSet missing = cpus;
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!missing[cpu]) continue;
    const CpuSet sharing = read_cpu_list(sysfs / ("cpu" + std::to_string(cpu)) / "cache/index3/shared_cpu_list");
    if (!sharing[cpu]) return {};
    domains.push_back(sharing);
    missing &= ~sharing;
  }
  return domains;
}

}  // namespace

Domains ranks_by_domain(std::span<const CpuSet> cpus_of_ranks, std::span<const CpuSet> domains) {
  std::vector<std::vector<int>> ranks_of_domains(domains.size());
  for (std::size_t rank = 0; rank < cpus_of_ranks.size(); ++rank) {
    const CpuSet& cpus = cpus_of_ranks[rank];
    const auto home = std::find_if(domains.begin(), domains.end(),
                                   [&](const CpuSet& domain) { return cpus.any() && (cpus & ~domain).none(); });
    if (home == domains.end()) return all_in_one(cpus_of_ranks.size());
    ranks_of_domains[static_cast<std::size_t>(home - domains.begin())].push_back(static_cast<int>(rank));
  }
  std::erase_if(ranks_of_domains, [](const auto& ranks) { return ranks.empty(); });
  std::sort(ranks_of_domains.begin(), ranks_of_domains.end());
  return ranks_of_domains;
}

Domains choose_domains(std::span<const CpuSet> cpus_of_ranks, std::span<const std::vector<CpuSet>> divisions) {
  Domains best = all_in_one(cpus_of_ranks.size());
  for (const auto& domains : divisions) {
    Domains groups = ranks_by_domain(cpus_of_ranks, domains);
    if (saving(groups) > saving(best)) best = std::move(groups);
  }
  return best;
}

CpuSet parse_cpu_list(const std::string& text) {
  CpuSet cpus;
  for (const int cpu : parse_cpu_numbers(text)) {
    if (static_cast<std::size_t>(cpu) >= kMaxCpus) return {};
    cpus.set(static_cast<std::size_t>(cpu));
  }
  return cpus;
}

std::vector<std::vector<CpuSet>> read_divisions(const CpuSet& cpus, const std::string& sysfs) {
  return {read_numa_nodes(sysfs + "/node"), read_last_caches(cpus, sysfs + "/cpu")};
}

}  // namespace hvd

// Which of a host's ranks are near each other: those whose CPUs share a last-level cache, or the memory of one socket.
//
// Where a host has D such domains with m ranks in each, an allreduce in which everyone reads from everyone moves
// m(N-m)/N of the data across each domain's border; domain by domain first it is D-1 times the data, m/D times less.
// That is worth a further barrier of all ranks only if m > D.
//
// The groups say in which order a sum is taken, whatever its size, so that they are a fact of the topology and never of
// a message.
#pragma once

#include <bitset>
#include <span>
#include <string>
#include <vector>

namespace hvd {

inline constexpr std::size_t kMaxCpus = 1024;
using CpuSet = std::bitset<kMaxCpus>;
using Domains = std::vector<std::vector<int>>;  // ascending ranks; in the order of their lowest rank

// Pure. Groups the ranks (by index) of one way to divide the CPUs into domains. One group of all where a rank's CPUs
// are not inside one domain.
Domains ranks_by_domain(std::span<const CpuSet> cpus_of_ranks, std::span<const CpuSet> domains);

// Pure. By the one of several ways to divide that saves most; one group of all if none is worth it.
Domains choose_domains(std::span<const CpuSet> cpus_of_ranks, std::span<const std::vector<CpuSet>> divisions);

// Pure. "0-3,8" as the kernel writes it; nothing of a text that it would not write.
CpuSet parse_cpu_list(const std::string& text);

// What the kernel tells: CPUs by NUMA node, and by last-level cache for those in `cpus`. Empty where it tells nothing.
std::vector<std::vector<CpuSet>> read_divisions(const CpuSet& cpus, const std::string& sysfs = "/sys/devices/system");

}  // namespace hvd

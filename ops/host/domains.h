// Determines which ranks of a host are close: those whose CPUs share a last-level cache, or the memory of one socket.
//
// On a host with D such domains of m ranks each, an allreduce in which every rank reads from every other moves m(N-m)/N
// of the data across each domain's border; domain by domain it is D-1 times the data, a factor of m/D less. That is
// worth a further barrier of all ranks only if m > D.
//
// The domains determine the order of summation for every size, so that it depends on the topology and never on a
// message.
#pragma once

#include <bitset>
#include <span>
#include <string>
#include <vector>

namespace hvd {

inline constexpr std::size_t kMaxCpus = 1024;
using CpuSet = std::bitset<kMaxCpus>;
using Domains = std::vector<std::vector<int>>;  // ascending ranks, in the order of the lowest rank

// Pure. Groups ranks (by index) by one division of the CPUs into domains. Returns one domain of all ranks if some
// rank's CPUs are not inside one domain.
Domains ranks_by_domain(std::span<const CpuSet> cpus_of_ranks, std::span<const CpuSet> domains);

// Pure. Uses the one of several divisions that saves most; returns one domain of all ranks if none is worth it.
Domains choose_domains(std::span<const CpuSet> cpus_of_ranks, std::span<const std::vector<CpuSet>> divisions);

// Pure. Parses "0-3,8" as the kernel writes it; returns an empty set for any other text.
CpuSet parse_cpu_list(const std::string& text);

// Reads from the kernel: CPUs by NUMA node, and by last-level cache for those in `cpus`. Empty if it provides neither.
std::vector<std::vector<CpuSet>> read_divisions(const CpuSet& cpus, const std::string& sysfs = "/sys/devices/system");

}  // namespace hvd

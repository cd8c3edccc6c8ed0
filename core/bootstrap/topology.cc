#include "core/bootstrap/topology.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

void group_by_host(Topology& topology) {
  std::unordered_map<std::string, int> host_of_key;
  for (int rank = 0; rank < topology.size; ++rank) {
    const auto next_host = static_cast<int>(topology.hosts.size());
    const int host = host_of_key.try_emplace(topology.identities[index(rank)].host_key, next_host).first->second;
    if (host == next_host) topology.hosts.emplace_back();
    topology.hosts[index(host)].push_back(rank);
    topology.host_of.push_back(host);
  }
}

// A launcher may have bound each rank to a different CPU.
int count_cpus(const std::vector<RankIdentity>& identities, const std::vector<int>& ranks) {
  std::vector<std::uint64_t> together;
  for (const int rank : ranks) {
    const auto& own = identities[index(rank)].cpus;
    together.resize(std::max(together.size(), own.size()));
    for (std::size_t word = 0; word < own.size(); ++word) together[word] |= own[word];
  }
  int count = 0;
  for (const std::uint64_t word : together) count += std::popcount(word);
  return count;
}

CpuUse cpu_use_of_machine(const std::vector<RankIdentity>& identities, int rank) {
  std::vector<int> ranks;
  for (int other = 0; other < static_cast<int>(identities.size()); ++other) {
    if (identities[index(other)].machine == identities[index(rank)].machine) ranks.push_back(other);
  }
  return {.ranks = static_cast<int>(ranks.size()), .cpus = count_cpus(identities, ranks)};
}

}  // namespace

int Topology::host() const { return host_of[static_cast<std::size_t>(rank)]; }

int Topology::job_rank() const { return job_rank_of(rank); }

int Topology::job_rank_of(int which) const { return job_ranks[index(which)]; }

std::string Topology::name(int which) const {
  if (which < 0 || which >= size) return "rank " + std::to_string(which);
  return "rank " + std::to_string(job_rank_of(which)) + " on " + identities[index(which)].hostname;
}

std::string Topology::describe(int which) const {
  if (which < 0 || which >= size) return name(which);
  return name(which) + " (pid " + std::to_string(identities[index(which)].pid) + ")";
}

Topology make_topology(int rank, std::vector<RankIdentity> identities) {
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(identities.size());
  topology.identities = std::move(identities);
  topology.job_ranks.resize(topology.identities.size());
  std::iota(topology.job_ranks.begin(), topology.job_ranks.end(), 0);
  if (rank < 0 || rank >= topology.size) {
    throw InvalidArgument("rank " + std::to_string(rank) + " in a job of " + std::to_string(topology.size));
  }
  group_by_host(topology);

  const std::vector<int>& mine = topology.hosts[index(topology.host())];
  topology.local_size = static_cast<int>(mine.size());
  topology.local_rank = static_cast<int>(std::ranges::lower_bound(mine, rank) - mine.begin());
  topology.job_local_rank = topology.local_rank;
  topology.local_cpus = count_cpus(topology.identities, mine);
  topology.machine = cpu_use_of_machine(topology.identities, rank);

  // Hosts without a rank of this local rank are not counted.
  topology.cross_size = 0;
  for (std::size_t host = 0; host < topology.hosts.size(); ++host) {
    if (topology.hosts[host].size() <= index(topology.local_rank)) continue;
    if (host < index(topology.host())) ++topology.cross_rank;
    ++topology.cross_size;
  }
  topology.homogeneous = std::ranges::all_of(
      topology.hosts, [&](const std::vector<int>& ranks) { return ranks.size() == topology.hosts.front().size(); });
  return topology;
}

Topology make_subset(const Topology& whole, const std::vector<int>& ranks) {
  std::vector<RankIdentity> identities;
  std::vector<int> job_ranks;
  for (const int rank : ranks) {
    identities.push_back(whole.identities[index(rank)]);
    job_ranks.push_back(whole.job_rank_of(rank));
  }
  const auto own = std::ranges::find(ranks, whole.rank);
  Topology topology = make_topology(static_cast<int>(own - ranks.begin()), std::move(identities));
  topology.job_ranks = std::move(job_ranks);
  topology.job_local_rank = whole.job_local_rank;
  return topology;
}

void check_settings(const Topology& topology) {
  const auto& first = topology.identities.front().settings;
  for (int rank = 1; rank < topology.size; ++rank) {
    const auto& settings = topology.identities[index(rank)].settings;
    const auto [mine, theirs] = std::ranges::mismatch(first, settings);
    if (mine == first.end() && theirs == settings.end()) continue;
    throw Mismatch("all ranks must have the same settings, but " + topology.describe(0) + " has " +
                   (mine == first.end() ? "none" : *mine) + " and " + topology.describe(rank) + " has " +
                   (theirs == settings.end() ? "none" : *theirs));
  }
}

}  // namespace hvd

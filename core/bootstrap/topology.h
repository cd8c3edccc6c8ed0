// The topology of a job: which ranks are on which host, and this rank's positions. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/futex.h"

namespace hvd {

// The identity that each rank publishes through the store.
struct RankIdentity {
  std::string host_key;   // equal if and only if ranks can share memory and abstract sockets
  std::string machine{};  // equal if and only if ranks run on one kernel: containers of a machine may be several hosts
  std::string hostname;   // for people
  int pid = 0;
  std::vector<std::string> settings{};  // shared_settings() of its configuration
  std::vector<std::uint64_t> cpus{};    // that it may run on (allowed_cpus())

  static void fields(auto& self, const auto& each) {
    each(self.host_key, self.machine, self.hostname, self.pid, self.settings, self.cpus);
  }
};

struct Topology {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host, in rank order
  int cross_rank = 0, cross_size = 1;  // among the ranks with the same local rank, in host order
  bool homogeneous = true;             // every host has the same number of ranks
  int local_cpus = 0;                  // that ranks of this host may run on, each counted once
  CpuUse machine;                      // the ranks that run on this one's machine
  int job_local_rank = 0;              // local_rank in the whole job, by which launchers and programs assign GPUs

  std::vector<RankIdentity> identities;  // by rank
  std::vector<int> job_ranks;            // by rank: its number in the job, of which this topology may be a subset
  std::vector<int> host_of;              // rank -> host index; hosts are numbered in order of their lowest rank
  std::vector<std::vector<int>> hosts;   // host index -> its ranks, ascending

  int host() const;
  int job_rank() const;
  // A rank's number in the job, by which a Status names a culprit, and people know it.
  int job_rank_of(int rank) const;
  // "rank 2 on host-b", with the rank's number in the job.
  std::string name(int rank) const;
  // "rank 2 on host-b (pid 1234)"
  std::string describe(int rank) const;
};

// Throws Mismatch, with two ranks and both values, unless all ranks have the same settings.
void check_settings(const Topology& topology);

Topology make_topology(int rank, std::vector<RankIdentity> identities);

// The topology of some ranks, this one among them, renumbered in their order. `ranks`: ascending.
Topology make_subset(const Topology& whole, const std::vector<int>& ranks);

}  // namespace hvd

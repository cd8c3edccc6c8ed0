// Allreduce over several hosts, some with more than one rank: through shared memory inside a host, and round a ring of
// the hosts' leaders (lowest ranks) between them, so that each byte crosses a host's network once instead of once a
// rank.
//
//   1. The ranks of a host reduce their tensors into accumulators at the leader.
//   2. The leaders allreduce the accumulators on a ring.
//   3. The leader scales and rounds, once, and broadcasts inside the host.
//
// A tensor is cut into the ring's slices by its own size (slice_layout.h): its result does not depend on the bucket.
// Adasum is left to the backend that reaches all ranks alike.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/execution/backend.h"
#include "core/rendezvous/topology.h"
#include "ops/algorithms/allreduce_algorithm.h"
#include "ops/algorithms/slice_layout.h"
#include "ops/host/host_group.h"
#include "ops/transport/transport.h"

namespace hvd {

class TwoLevelBackend final : public Backend {
 public:
  // `group` is that of this rank's host; `transport` reaches all ranks. The timeout is for one step on the ring.
  TwoLevelBackend(std::shared_ptr<HostGroup> group, std::shared_ptr<Transport> transport, const Topology& topology,
                  Duration timeout, ChooseAllreduce choose_allreduce,
                  InstructionSet instruction_set = InstructionSet::automatic);

  const char* name() const override { return "two-level"; }
  int score(const CollectiveCall& call) const override;
  void run(const CollectiveCall& call) override;

 private:
  void reduce_between_hosts(const CollectiveCall& call, const SliceLayout& layout, std::byte* accumulators,
                            std::byte* results);

  const std::shared_ptr<HostGroup> group_;
  const std::shared_ptr<Transport> transport_;
  const Duration timeout_;
  const ChooseAllreduce choose_allreduce_;
  const InstructionSet instruction_set_;
  const int host_;
  const bool worthwhile_;     // several hosts, and not only one rank on each
  std::vector<int> leaders_;  // by host
};

}  // namespace hvd

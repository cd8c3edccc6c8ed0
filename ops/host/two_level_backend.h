// Allreduce over several hosts, some with more than one rank: through shared memory inside a host, and over the network
// between the hosts' leaders (lowest ranks), so that each byte crosses a host's network once instead of once per rank.
//
//   1. The ranks of a host reduce their tensors into accumulators at the leader.
//   2. The leaders allreduce the accumulators; each slice is scaled and rounded, once, by the leader that completes it.
//   3. The leader broadcasts inside the host.
//
// The three overlap, portion by portion (two_level_pass.h). A tensor is cut into slices by its own size
// (slice_layout.h): its result does not depend on the bucket. Adasum is left to the backend that treats all ranks
// equally.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/bootstrap/topology.h"
#include "core/execution/backend.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/scratch.h"
#include "ops/algorithms/slice_layout.h"
#include "ops/algorithms/word_exchange.h"
#include "ops/host/host_communicator.h"
#include "ops/transport/transport.h"

namespace hvd {

class TwoLevelBackend final : public Backend {
 public:
  // `group` belongs to this rank's host; `transport` connects all ranks; `words` exchanges their words. The timeout
  // applies to a leader's part and to each wait inside the host.
  TwoLevelBackend(std::shared_ptr<HostCommunicator> group, std::shared_ptr<Transport> transport,
                  const Topology& topology, std::shared_ptr<WordExchange> words, Duration timeout,
                  ChooseAllreduce choose_allreduce, InstructionSet instruction_set = InstructionSet::automatic);

  const char* name() const override { return "two-level"; }
  int score(const CollectiveCall& call) const override;
  void run(const CollectiveCall& call) override;
  bool can_be_asked(const ProcessSet& set) const override { return set.size() == ranks_; }
  void decline(const ProcessSet& set, std::uint32_t call_id) override { words_->decline(set, call_id); }
  void set_late_callback(Duration timeout, const std::function<bool()>& late) override {
    words_->set_late_callback(timeout, late);
  }

 private:
  void lead(const CollectiveCall& call, const SliceLayout& layout);

  const std::shared_ptr<HostCommunicator> group_;
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<WordExchange> words_;
  const Duration timeout_;
  const ChooseAllreduce choose_allreduce_;
  const InstructionSet instruction_set_;
  const int ranks_;
  const int host_;
  const bool worthwhile_;     // several hosts, at least one of them with several ranks
  std::vector<int> leaders_;  // by host
  Scratch scratch_;           // used by the leader
};

}  // namespace hvd

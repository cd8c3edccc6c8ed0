// Allreduce over several hosts, some with more than one rank, and the vote before it: through shared memory inside a
// host, and over the network between the hosts' leaders (lowest ranks), so that each byte crosses a host's network once
// instead of once per rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/bootstrap/topology.h"
#include "core/execution/backend.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/packing.h"
#include "ops/algorithms/word_exchange.h"
#include "ops/host/host_context.h"
#include "ops/transport/transport.h"

namespace hvd {

// The lowest rank of each host.
std::vector<int> leaders_of(const Topology& topology);

// Performs the allreduce.
//
//   1. The ranks of a host reduce their tensors into accumulators at the leader.
//   2. The leaders allreduce the accumulators; each slice is scaled and rounded, once, by the leader that completes it.
//   3. The leader broadcasts inside the host.
//
// The three overlap, portion by portion. A tensor is cut into slices by its own size (packing.h): its result does
// not depend on the bucket. Adasum is left to the backend that treats all ranks equally.
class TwoLevelBackend final : public Backend {
 public:
  // `context` belongs to this rank's host; `transport` connects all ranks; `words` exchanges their words. The timeout
  // applies to a leader's part and to each wait inside the host.
  TwoLevelBackend(std::shared_ptr<HostContext> context, std::shared_ptr<Transport> transport, const Topology& topology,
                  std::shared_ptr<WordExchange> words, Duration timeout, ChooseAllreduce choose_allreduce,
                  InstructionSet instruction_set = InstructionSet::automatic);

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

  const std::shared_ptr<HostContext> context_;
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<WordExchange> words_;
  const Duration timeout_;
  const ChooseAllreduce choose_allreduce_;
  const InstructionSet instruction_set_;
  const int ranks_;
  const int host_;
  const bool worthwhile_;           // several hosts, at least one of them with several ranks
  const std::vector<int> leaders_;  // by host
  Scratch scratch_;                 // used by the leader
};

// The vote (word_exchange.h).
//
//   1. The ranks of a host exchange their words.
//   2. The leaders disseminate whether any rank of their hosts declines.
//   3. The leader sends the result to its host.
class TwoLevelWords final : public WordExchange {
 public:
  // `context` belongs to this rank's host; `transport` connects all ranks.
  TwoLevelWords(std::shared_ptr<HostContext> context, std::shared_ptr<Transport> transport, const Topology& topology,
                Duration timeout);

  void set_late_callback(Duration timeout, const std::function<bool()>& late) override;

 private:
  Word exchange(Word own, const Tag& tag) override;
  // Exchanges words inside the host; returns them by local rank.
  std::vector<Word> tell_host(Word word, const Tag& tag);

  const std::shared_ptr<HostContext> context_;
  const std::shared_ptr<Transport> transport_;
  const int host_;
  const std::vector<int> leaders_;  // by host
};

}  // namespace hvd

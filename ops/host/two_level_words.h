// An exchange of words over several hosts, some with more than one rank: through shared memory inside a host, and
// between the hosts' leaders (lowest ranks) over the network.
//
//   1. The ranks of a host tell one another their words.
//   2. The leaders disseminate whether anybody on their hosts declines.
//   3. The leader tells its host.
#pragma once

#include <memory>
#include <vector>

#include "core/rendezvous/topology.h"
#include "ops/algorithms/word_exchange.h"
#include "ops/host/host_communicator.h"
#include "ops/transport/transport.h"

namespace hvd {

class TwoLevelWords final : public WordExchange {
 public:
  // `group` is that of this rank's host; `transport` reaches all ranks.
  TwoLevelWords(std::shared_ptr<HostCommunicator> group, std::shared_ptr<Transport> transport, const Topology& topology,
                Duration timeout);

  void set_late_callback(Duration timeout, const std::function<bool()>& late) override;

 private:
  Word exchange(Word own, const Tag& tag) override;
  // By local rank.
  std::vector<Word> tell_host(Word word, const Tag& tag);

  const std::shared_ptr<HostCommunicator> group_;
  const std::shared_ptr<Transport> transport_;
  const int host_;
  std::vector<int> leaders_;  // by host
};

}  // namespace hvd

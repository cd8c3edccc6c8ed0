// A word exchange over several hosts, some with more than one rank: through shared memory inside a host, and over the
// network between the hosts' leaders (lowest ranks).
//
//   1. The ranks of a host exchange their words.
//   2. The leaders disseminate whether any rank of their hosts declines.
//   3. The leader sends the result to its host.
#pragma once

#include <memory>
#include <vector>

#include "core/bootstrap/topology.h"
#include "ops/algorithms/word_exchange.h"
#include "ops/host/host_communicator.h"
#include "ops/transport/transport.h"

namespace hvd {

class TwoLevelWords final : public WordExchange {
 public:
  // `group` belongs to this rank's host; `transport` connects all ranks.
  TwoLevelWords(std::shared_ptr<HostCommunicator> group, std::shared_ptr<Transport> transport, const Topology& topology,
                Duration timeout);

  void set_late_callback(Duration timeout, const std::function<bool()>& late) override;

 private:
  Word exchange(Word own, const Tag& tag) override;
  // Exchanges words inside the host; returns them by local rank.
  std::vector<Word> tell_host(Word word, const Tag& tag);

  const std::shared_ptr<HostCommunicator> group_;
  const std::shared_ptr<Transport> transport_;
  const int host_;
  std::vector<int> leaders_;  // by host
};

}  // namespace hvd

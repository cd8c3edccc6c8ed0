// Allreduce over several hosts, some with more than one rank, and the vote before it: through shared memory inside a
// host, and over the network between the hosts' leaders (lowest ranks), so that each byte crosses a host's network once
// instead of once per rank.
#pragma once

#include <memory>
#include <vector>

#include "core/bootstrap/topology.h"
#include "core/execution/backend.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/vote_exchange.h"
#include "ops/host/host_context.h"
#include "ops/transport/transport.h"

namespace hvd {

// The lowest rank of each host.
std::vector<int> leaders_of(const Topology& topology);

// Makes the backend for the allreduce. `context` belongs to this rank's host; `transport` connects all ranks; `votes`
// exchanges their votes. The timeout applies to a leader's part and to each wait inside the host.
std::unique_ptr<Backend> make_two_level_backend(std::shared_ptr<HostContext> context,
                                                std::shared_ptr<Transport> transport, const Topology& topology,
                                                std::shared_ptr<VoteExchange> votes, Duration timeout,
                                                ChooseAllreduce choose_allreduce,
                                                InstructionSet instruction_set = InstructionSet::automatic);

// Makes the vote exchange of all ranks: inside each host through the window, between hosts among the leaders.
std::unique_ptr<VoteExchange> make_two_level_vote_exchange(std::shared_ptr<HostContext> context,
                                                           std::shared_ptr<Transport> transport,
                                                           const Topology& topology, Duration timeout);

}  // namespace hvd

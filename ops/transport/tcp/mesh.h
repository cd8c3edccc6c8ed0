// Connections between every two of some ranks, made once at start.
//
// Each rank listens on its own address, publishes it in the store under "data/<rank>" with the number of sockets that
// it would have to each peer, connects to the lower ranks and accepts the higher ones. A pair has as many sockets as
// the one that wants fewer. A rank begins to accept when it is connected to all lower ones, so that the mesh grows from
// rank 0 upwards without a cycle of waits. Nothing listens any more afterwards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/net/authentication.h"
#include "core/rendezvous/store.h"
#include "ops/transport/operation.h"

namespace hvd {

struct MeshSetup {
  int rank = 0;
  std::vector<int> ranks;  // global ranks to connect with each other, the own one included
  Store& store;
  const JobKey& job_key;
  std::string local_host;    // address under which the other ranks reach this one
  int sockets_per_peer = 1;  // up to kMaxSocketsPerPeer
  Duration lease = kDefaultLease;
  DescribeRank describe;
  const Log& log;
  Deadline deadline;
};

// Connected, authenticated sockets to each other rank, in the same order at both ends. Throws Timeout that names the
// ranks that did not come.
std::map<int, std::vector<Socket>> connect_mesh(const MeshSetup& setup);

}  // namespace hvd

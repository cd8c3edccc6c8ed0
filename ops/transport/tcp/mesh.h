// Connects every pair of some ranks once, at start.
//
// Each rank listens on its address, publishes it in the store under "data/<rank>" with the number of sockets that it
// wants to each peer, connects to the lower ranks and accepts the higher ones. A pair uses the smaller of its two
// numbers of sockets. A rank begins to accept when it is connected to all lower ones, so that the mesh grows from rank
// 0 upwards without a cycle of waits. Afterwards no rank listens any more.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/net/authentication.h"
#include "ops/transport/operation.h"

namespace hvd {

struct MeshSetup {
  int rank = 0;
  std::vector<int> ranks;  // global ranks to connect with each other, including the local one
  Store& store;
  const JobKey& job_key;
  std::string local_host;    // address at which the other ranks reach this one
  int sockets_per_peer = 1;  // up to kMaxSocketsPerPeer
  Duration lease = kDefaultLease;
  DescribeRank describe;
  const Log& log;
  Deadline deadline;
};

// Returns connected, authenticated sockets to each other rank, in the same order at both ends. Throws Timeout that
// names the ranks that did not connect.
std::map<int, std::vector<Socket>> connect_mesh(const MeshSetup& setup);

}  // namespace hvd

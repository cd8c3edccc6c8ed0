// Connects every pair of some ranks once, at start.
//
// Each rank listens on its address, publishes it in the store under "data/<rank>" with the number of sockets that it
// wants to each peer, connects to the lower ranks and accepts the higher ones. A pair uses the smaller of its two
// numbers of sockets. A rank begins to accept when it is connected to all lower ones, so that the mesh grows from rank
// 0 upwards without a cycle of waits. Afterwards no rank listens any more.
//
// One TCP connection runs on one core at either end, and in clouds it may be limited to a share of the link's
// bandwidth. Above some speed several connections are needed to fill the link; below it one is best.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/net/authentication.h"
#include "ops/transport/transport.h"

namespace hvd {

inline constexpr int kMaxSocketsPerPeer = 64;

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

// The number of connections to a peer by the speed of the network link: 1 if it is unknown or below 25 Gb/s, then 2,
// and 4 from 100 Gb/s. Pure.
int sockets_for_speed(std::optional<int> megabits_per_second);

// Returns the speed of the interface that has this numeric address, as reported by the kernel
// (/sys/class/net/<interface>/speed); empty if unknown.
std::optional<int> link_speed(const std::string& local_host);

}  // namespace hvd

// Connects every pair of some ranks once, at start.
//
// Each rank listens on its addresses and publishes them in the store under "data/<rank>", with the number of sockets
// that it wants for each peer. It connects to the lower ranks and accepts the higher ones. A pair of ranks uses the
// smaller of its two numbers, on each network of the lower rank. A rank accepts connections only once it is connected
// to all lower ranks: the mesh grows from rank 0 upwards, without a cycle of waits. No rank listens afterwards.
//
// One TCP connection runs on one core at either end, and in clouds it may be limited to a share of the link's
// bandwidth. Above some speed several connections are needed to fill the link; below it one is best. The routing table
// selects the interface for an address. A host with two interfaces uses both only if they are on different networks.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/net/authentication.h"
#include "ops/transport/transport.h"

namespace hvd {

inline constexpr int kMaxSocketsPerPeer = 64;  // on one network
inline constexpr std::size_t kMaxNetworks = 16;

struct MeshSetup {
  const Topology& topology;  // of the ranks to connect with each other
  Store& store;
  const JobKey& job_key;
  std::vector<std::string>
      local_hosts;  // addresses at which the other ranks reach this one, one on each network, up to kMaxNetworks
  int sockets_per_peer = 1;  // on each network, up to kMaxSocketsPerPeer
  Duration lease = kDefaultLease;
  const Log& log;
  Deadline deadline;
};

// Returns connected, authenticated sockets to each other rank, in the same order at both ends, alternating between
// networks. Throws Timeout that names the ranks that did not connect.
std::map<int, std::vector<Socket>> connect_mesh(const MeshSetup& setup);

// The number of connections to a peer by the speed of the network link: 1 if it is unknown or below 25 Gb/s, then 2,
// and 4 from 100 Gb/s. Pure.
int sockets_for_speed(std::optional<int> megabits_per_second);

// Returns, in their order, the addresses of this host over which messages can be spread evenly: those with the highest
// speed, and those whose speed is unknown. Pure.
std::vector<std::string> equally_fast(const std::vector<std::string>& addresses,
                                      const std::function<std::optional<int>(const std::string&)>& speed_of);

// Returns the speed of the interface that has this numeric address, as reported by the kernel
// (/sys/class/net/<interface>/speed); empty if unknown.
std::optional<int> link_speed(const std::string& local_host);

}  // namespace hvd

// Chooses the number of connections to a peer by the speed of the network link.
//
// One TCP connection runs on one core at either end, and in clouds it may be limited to a share of the link's
// bandwidth. Above some speed several connections are needed to fill the link; below it one is best.
#pragma once

#include <optional>
#include <string>

namespace hvd {

inline constexpr int kMaxSocketsPerPeer = 64;

// Pure. Returns 1 if the speed is unknown or below 25 Gb/s, then 2, and 4 from 100 Gb/s.
int sockets_for_speed(std::optional<int> megabits_per_second);

// Returns the speed of the interface that has this numeric address, as reported by the kernel
// (/sys/class/net/<interface>/speed); empty if unknown.
std::optional<int> link_speed(const std::string& local_host);

}  // namespace hvd

// How many connections to a peer a network link is worth.
//
// One TCP connection runs on one core at either end, and in clouds it may be held to a share of what the link carries;
// beyond some speed it takes several to fill it, below it one is best.
#pragma once

#include <optional>
#include <string>

namespace hvd {

inline constexpr int kMaxSocketsPerPeer = 64;

// Pure. 1 where the speed is not known or below 25 Gb/s, then 2, and 4 from 100 Gb/s.
int sockets_for_speed(std::optional<int> megabits_per_second);

// Of the interface that has this numeric address, as the kernel says (/sys/class/net/<interface>/speed); empty where it
// does not say.
std::optional<int> link_speed(const std::string& local_host);

}  // namespace hvd

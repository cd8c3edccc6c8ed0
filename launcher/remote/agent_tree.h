// Who starts whose agent. Pure.
#pragma once

#include <vector>

namespace hvd::launcher {

// Up to here hvdrun starts all agents itself.
inline constexpr int kMostChildren = 64;

// By host: the host whose agent starts its agent; -1: hvdrun does. In a larger job each starts 32 at most, so that it
// takes log32(hosts) steps, one after the other.
std::vector<int> agent_tree(int hosts);

}  // namespace hvd::launcher

// The tree in which agents start each other. Pure.
#pragma once

#include <vector>

namespace hvd::launcher {

// Up to this number of hosts, hvdrun starts all agents itself.
inline constexpr int kMostChildren = 64;

// Returns for each host the host whose agent starts its agent; -1: hvdrun does. In a larger job each starts 32 agents
// at most, so that starting takes log32(hosts) sequential steps.
std::vector<int> agent_tree(int hosts);

}  // namespace hvd::launcher

// Ranks on hosts, for tests.
#pragma once

#include <string>
#include <vector>

#include "core/bootstrap/topology.h"

namespace hvd {

// One letter per rank: ranks with the same letter share a host.
inline std::vector<RankIdentity> ranks_on(const std::string& hosts) {
  std::vector<RankIdentity> identities;
  for (const char host : hosts) {
    const int pid = 100 + static_cast<int>(identities.size());
    identities.push_back({.host_key = std::string("key-") + host, .hostname = std::string("host-") + host, .pid = pid});
  }
  return identities;
}

}  // namespace hvd

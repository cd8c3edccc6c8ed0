// The network addresses of this host.
#pragma once

#include <string>
#include <vector>

namespace hvd {

struct LocalAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric IPv4
};

// The addresses at which other hosts may reach this one, in the system's order: of interfaces that are up, without
// loopback and 169.254.0.0/16, at most 16. Empty without a network.
std::vector<LocalAddress> local_addresses();

}  // namespace hvd

// Finds an address at which an agent can reach its parent.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/net/endpoint.h"
#include "core/net/socket.h"

namespace hvd::launcher {

struct Way {
  Address parent;
  std::string local_address;  // numeric: this host's address on that network
};

// Tries the addresses in turn, one second each, until one answers. Throws Timeout with the error of each address.
Way find_parent(const std::vector<Address>& addresses, Deadline deadline);

// Returns the addresses of the interfaces that the user has named, in the user's order; all addresses if none are
// named. Throws InvalidArgument if none of the named interfaces exists. Pure.
std::vector<std::string> addresses_of(const std::vector<LocalAddress>& own, const std::vector<std::string>& interfaces);

}  // namespace hvd::launcher

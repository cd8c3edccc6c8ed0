// How an agent finds its parent: one address at which it can be reached is enough.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/net/local_addresses.h"
#include "core/net/socket.h"

namespace hvd::launcher {

struct Way {
  Address parent;
  std::string local_address;  // numeric: how this host is reached on that network
};

// Tries the addresses in turn, a second each, until one answers. Throws Timeout that says of each what came of it.
Way find_parent(const std::vector<Address>& addresses, Deadline deadline);

// Of the addresses, those of the interfaces that the user has named, in the user's order; all if none were named.
// Throws InvalidArgument if there is none. Pure.
std::vector<std::string> addresses_of(const std::vector<LocalAddress>& own, const std::vector<std::string>& interfaces);

}  // namespace hvd::launcher

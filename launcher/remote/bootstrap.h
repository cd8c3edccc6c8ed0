// How an agent finds its parent: the bootstrap message that it reads from its standard input, and the address that
// answers.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/net/endpoint.h"
#include "core/net/socket.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

// The bootstrap message that an agent reads from its standard input: the address of its parent, and the certificate
// with which both ends authenticate. It appears on no command line and in no file.
// Pure.
std::string encode_bootstrap(const proto::Bootstrap& bootstrap);

// Reads exactly one message from a descriptor. Throws InvalidArgument if the input is something else, or Timeout.
proto::Bootstrap read_bootstrap(int fd, Deadline deadline);

// Finds an address at which an agent can reach its parent.
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

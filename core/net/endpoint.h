// An Address as the kernel represents it, sockets with hvd's options, and this host's own addresses. For core/net and
// others that resolve names.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "core/net/socket.h"

namespace hvd {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&storage); }
  // Numeric; empty for Unix sockets.
  std::string host() const;
  std::uint16_t port() const;
};

// All endpoints of the address, best first; empty, with `cause` set, if its name is unknown. Host names are looked up
// by the system's resolver, which has its own timeouts and takes no deadline.
std::vector<Endpoint> resolve(const Address& address, bool for_listening, std::string& cause);

// Non-blocking, closed on exec; empty if the kernel does not support the family. Throws Internal (out of descriptors).
FileDescriptor open_stream_socket(int family);

// No delay; a host that is silent for ten seconds, or does not accept what it is sent, counts as dead. No effect on
// Unix sockets.
void tune_stream_socket(int fd, int family);

// Starts connecting a new, tuned socket to the endpoint: 0 if it is connected already, EINPROGRESS if end_connect() is
// to be called once it is writable, or the errno value of the failure. Throws Internal (out of descriptors).
int begin_connect(const Endpoint& endpoint, FileDescriptor& result);
int end_connect(int fd);  // 0, or the errno value of the failure

// See Socket; TCP only.
void grant_lease(int fd, Duration lease);
Delivery delivery_of(int fd);

struct LocalAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric IPv4
};

// The addresses at which other hosts may reach this one, in the system's order: of interfaces that are up, without
// loopback and 169.254.0.0/16, at most 16. Empty without a network.
std::vector<LocalAddress> local_addresses();

}  // namespace hvd

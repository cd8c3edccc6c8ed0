// An Address as the kernel represents it, how connections to it begin, and this host's own addresses. For core/net and
// others that resolve names or connect in an event loop.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "core/net/socket.h"

namespace hvd {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* address() const;
  sockaddr* address();
  // Numeric; empty for Unix sockets.
  std::string host() const;
  std::uint16_t port() const;
};

// The ends of a socket. The peer's is empty if there is none any more; the other throws Internal.
Endpoint local_endpoint(int fd);
Endpoint peer_endpoint(int fd);

// A host as it stands before a colon and a port: an IPv6 address in brackets.
std::string bracketed(const std::string& host);

// All endpoints of the address, best first; empty, with `cause` set, if its name is unknown. Host names are looked up
// by the system's resolver, which has its own timeouts and takes no deadline.
std::vector<Endpoint> resolve(const Address& address, bool for_listening, std::string& cause);

// Starts connecting a new socket to the endpoint, without delay and with keep_alive() of ten seconds: 0 if it is
// connected already, EINPROGRESS if end_connect() is to be called once it is writable, or the errno value of the
// failure. Throws Internal (out of descriptors).
int begin_connect(const Endpoint& endpoint, FileDescriptor& result);
int end_connect(int fd);  // 0, or the errno value of the failure

// The kernel's settings of keep-alive, in whole seconds: the first probe after `idle_s` of silence, then one every
// `interval_s`; the connection breaks after `probes` without an answer, that is after the lease, rounded up to seconds;
// for a lease of up to one second after two.
struct KeepAlive {
  int idle_s = 1;
  int interval_s = 1;
  int probes = 1;

  int limit_s() const;
};

KeepAlive keep_alive(Duration lease);  // pure

struct LocalAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric IPv4
};

// The addresses at which other hosts may reach this one, in the system's order: of interfaces that are up, without
// loopback and 169.254.0.0/16. Empty without a network.
std::vector<LocalAddress> local_addresses();

// So many of them are told to others, who try one after the other.
inline constexpr std::size_t kMaxAddresses = 16;

// The addresses of the interfaces that the user has named ("eth0"), or whose network ("10.1.0.0/16"), in the user's
// order; if none are named, the first kMaxAddresses. Throws InvalidArgument, which begins with `option`, if none of the
// named interfaces exists. Pure.
std::vector<std::string> addresses_of(const std::vector<LocalAddress>& own, const std::vector<std::string>& interfaces,
                                      const char* option);

}  // namespace hvd

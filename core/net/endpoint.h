// An Address as the kernel wants it, and sockets made ready for hvd. For core/net, and for who resolves names alike.
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

// All endpoints that the address may mean, best first; empty, with `cause` filled, if its name is not known. A host
// name is looked up by the system's resolver, which has time limits of its own and knows no deadline.
std::vector<Endpoint> resolve(const Address& address, bool for_listening, std::string& cause);

// Non-blocking, closed on exec; empty if the kernel does not know the family. Throws Internal (no more descriptors).
FileDescriptor open_stream_socket(int family);

// No delay, and a host that is silent for ten seconds, or does not take what it is sent, counts as dead. Nothing on
// Unix sockets.
void tune_stream_socket(int fd, int family);

// Begins to connect a new socket, tuned, to the endpoint: 0 if it is connected already, EINPROGRESS if end_connect() is
// to be called when it can be written to, or the errno value of the failure. Throws Internal (no more descriptors).
int begin_connect(const Endpoint& endpoint, FileDescriptor& result);
int end_connect(int fd);  // 0, or the errno value of the failure

// See Socket; TCP only.
void grant_lease(int fd, Duration lease);
Delivery delivery_of(int fd);

}  // namespace hvd

#include "launcher/plan/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "launcher/loop/throw_errno.h"

namespace hvd::launcher {
namespace {

// Binds for both families if the host has IPv6, else for IPv4.
FileDescriptor bind_any_port() {
  const int on = 1;
  FileDescriptor both(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in6 any6{
      .sin6_family = AF_INET6, .sin6_port = 0, .sin6_flowinfo = 0, .sin6_addr = {}, .sin6_scope_id = 0};
  if (both && setsockopt(both.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(both.get(), reinterpret_cast<const sockaddr*>(&any6), sizeof any6) == 0) {
    return both;
  }
  FileDescriptor ipv4(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in any4{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  if (!ipv4 || setsockopt(ipv4.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(ipv4.get(), reinterpret_cast<const sockaddr*>(&any4), sizeof any4) != 0) {
    throw_errno("cannot reserve a port");
  }
  return ipv4;
}

}  // namespace

ReservedPort::ReservedPort() : socket_(bind_any_port()) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw_errno("cannot reserve a port");
  }
  number_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                                : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace hvd::launcher

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "core/base/error.h"
#include "core/base/error_text.h"
#include "core/net/endpoint.h"
#include "core/net/random_bytes.h"

namespace hvd {

namespace {

// The kernel limits it to net.core.somaxconn.
constexpr int kBacklog = 4096;

FileDescriptor listen_on(const Endpoint& endpoint, const std::string& name) {
  FileDescriptor fd = open_stream_socket(endpoint.storage.ss_family);
  // Makes a given port available again as soon as its last listener is gone.
  const int yes = 1;
  if (fd && endpoint.port() != 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!fd || bind(fd.get(), endpoint.address(), endpoint.length) != 0 || listen(fd.get(), kBacklog) != 0) {
    throw InvalidArgument("cannot listen on " + name + ": " + error_text(errno));
  }
  return fd;
}

std::uint16_t bound_port(int fd) {
  Endpoint endpoint;
  endpoint.length = sizeof endpoint.storage;
  if (getsockname(fd, endpoint.address(), &endpoint.length) != 0) {
    throw Internal("getsockname: " + error_text(errno));
  }
  return endpoint.port();
}

}  // namespace

Listener Listener::tcp(const std::string& host, std::uint16_t port) {
  Address address{.kind = Address::Kind::tcp, .host = host, .port = port};
  std::string cause;
  const auto endpoints = resolve(address, true, cause);
  if (endpoints.empty()) throw InvalidArgument("cannot listen on " + host + ": " + cause);
  FileDescriptor fd = listen_on(endpoints.front(), port == 0 ? host : host + " port " + std::to_string(port));
  address.port = bound_port(fd.get());
  return Listener(std::move(fd), std::move(address));
}

Listener Listener::unix_abstract() {
  std::array<std::byte, 16> name;
  fill_random(name);
  Address address{.kind = Address::Kind::unix_abstract, .host = "hvd-" + to_hex(name), .port = 0};
  std::string cause;
  FileDescriptor fd = listen_on(resolve(address, true, cause).front(), address.to_string());
  return Listener(std::move(fd), std::move(address));
}

std::optional<Socket> Listener::accept_now() {
  for (;;) {
    FileDescriptor fd(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      tune_stream_socket(fd.get(), address_.kind == Address::Kind::tcp ? AF_INET : AF_UNIX);
      return Socket(std::move(fd));
    }
    switch (errno) {
      case EAGAIN: return std::nullopt;
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM: throw Internal("cannot accept a connection on " + address_.to_string() + ": " + error_text(errno));
      case EBADF:
      case EINVAL:
      case ENOTSOCK: throw Internal("accept on " + address_.to_string() + ": " + error_text(errno));
      default: continue;  // this connection broke before it was accepted; the next may be fine
    }
  }
}

}  // namespace hvd

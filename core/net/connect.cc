// How connections begin: listening and accepting, and connecting.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/authentication.h"
#include "core/net/endpoint.h"

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

constexpr Duration kFirstPause = std::chrono::milliseconds(2);
constexpr Duration kLongestPause = std::chrono::milliseconds(200);

// While there is no listener there is no event to wait for; only another attempt can tell.
void pause_until(TimePoint when) { poll(nullptr, 0, poll_timeout(when)); }

// A TCP connection to a free port of this host can connect to itself (simultaneous open): then there is no listener.
bool connected_to_itself(int fd) {
  Endpoint own, other;
  own.length = other.length = sizeof(sockaddr_storage);
  if (getsockname(fd, own.address(), &own.length) != 0 || getpeername(fd, other.address(), &other.length) != 0) {
    return false;
  }
  return own.port() != 0 && own.port() == other.port() && own.host() == other.host();
}

// This host's address is unreachable only while its loopback interface is down: waiting does not help.
void refuse_without_loopback(const Address& address, const Endpoint& endpoint, int failure) {
  const std::string host = endpoint.host();
  if (failure != ENETUNREACH || (!host.starts_with("127.") && host != "::1")) return;
  throw Internal("cannot connect to " + address.to_string() + ": " + error_text(failure) +
                 ": the loopback interface of this host is down, or of this container; ip link set lo up, as root, " +
                 "brings it up");
}

bool wait_connected(int fd, Deadline deadline, AlarmClock& alarm) {
  while (!wait_ready(fd, true, std::min(deadline, alarm.next()))) {
    if (Clock::now() >= deadline) return false;
    alarm.look();
  }
  return true;
}

// One attempt; 0 or the errno value of its failure.
int try_connect(const Endpoint& endpoint, Deadline deadline, AlarmClock& alarm, FileDescriptor& result) {
  FileDescriptor fd;
  int failure = begin_connect(endpoint, fd);
  if (failure == EINPROGRESS) {
    if (!wait_connected(fd.get(), deadline, alarm)) return ETIMEDOUT;
    failure = end_connect(fd.get());
  }
  if (failure != 0) return failure;
  if (connected_to_itself(fd.get())) return ECONNREFUSED;
  result = std::move(fd);
  return 0;
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

int begin_connect(const Endpoint& endpoint, FileDescriptor& result) {
  const int family = endpoint.storage.ss_family;
  result = open_stream_socket(family);
  if (!result) return EAFNOSUPPORT;
  tune_stream_socket(result.get(), family);
  return ::connect(result.get(), endpoint.address(), endpoint.length) == 0 ? 0 : errno;
}

int end_connect(int fd) {
  int failure = 0;
  socklen_t length = sizeof failure;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length) == 0 ? failure : errno;
}

Socket Socket::connect(const Address& address, Deadline deadline, const Alarm& alarm) {
  const TimePoint start = Clock::now();
  AlarmClock alarm_clock(alarm);
  std::string cause;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    for (const Endpoint& endpoint : resolve(address, false, cause)) {
      FileDescriptor fd;
      const int failure = try_connect(endpoint, deadline, alarm_clock, fd);
      if (failure == 0) return Socket(std::move(fd));
      refuse_without_loopback(address, endpoint, failure);
      cause = error_text(failure);
    }
    const TimePoint now = Clock::now();
    if (now >= deadline) {
      const auto waited = std::chrono::round<std::chrono::milliseconds>(now - start).count();
      throw Timeout("could not connect to " + address.to_string() + " for " + std::to_string(waited) + " ms: " + cause);
    }
    alarm_clock.look();
    pause_until(std::min(deadline, now + pause));
  }
}

}  // namespace hvd

#include "core/net/endpoint.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <system_error>

#include "core/base/error.h"
#include "core/base/error_text.h"

namespace hvd {

namespace {

constexpr Duration kUnhurriedLease = std::chrono::seconds(10);

void set_option(int fd, int level, int name, int value) {
  if (setsockopt(fd, level, name, &value, sizeof value) != 0) {
    throw Internal("setsockopt " + std::to_string(name) + ": " + error_text(errno));
  }
}

void keep_alive_for(int fd, Duration lease) {
  const KeepAlive probes = keep_alive(lease);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, probes.idle_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, probes.interval_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes.probes);
}

Endpoint unix_endpoint(const std::string& name) {
  Endpoint endpoint;
  auto* address = reinterpret_cast<sockaddr_un*>(&endpoint.storage);
  if (name.size() + 1 > sizeof address->sun_path) throw InvalidArgument("abstract socket name too long: " + name);
  address->sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract; its length, not a terminator, ends it.
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  endpoint.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return endpoint;
}

}  // namespace

std::string Endpoint::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof text);
  } else if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, text, sizeof text);
  }
  return text;
}

std::uint16_t Endpoint::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

std::vector<Endpoint> resolve(const Address& address, bool for_listening, std::string& cause) {
  if (address.kind == Address::Kind::unix_abstract) return {unix_endpoint(address.host)};

  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (for_listening ? AI_PASSIVE : 0);
  addrinfo* first = nullptr;
  const int failure = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &first);
  if (failure != 0) {
    cause = gai_strerror(failure);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(first, freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* info = first; info != nullptr; info = info->ai_next) {
    Endpoint& endpoint = endpoints.emplace_back();
    std::memcpy(&endpoint.storage, info->ai_addr, info->ai_addrlen);
    endpoint.length = info->ai_addrlen;
  }
  return endpoints;
}

FileDescriptor open_stream_socket(int family) {
  FileDescriptor fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd && errno != EAFNOSUPPORT) throw Internal("cannot open a socket: " + error_text(errno));
  return fd;
}

void tune_stream_socket(int fd, int family) {
  if (family == AF_UNIX) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  keep_alive_for(fd, kUnhurriedLease);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kUnhurriedLease / 1ms));
}

void grant_lease(int fd, Duration lease) {
  keep_alive_for(fd, lease);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

Delivery delivery_of(int fd) {
  int unconfirmed = 0;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (ioctl(fd, SIOCOUTQ, &unconfirmed) != 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  return {.complete = unconfirmed == 0 && info.tcpi_probes == 0,
          .awaits_answer = info.tcpi_unacked > 0 || info.tcpi_probes > 0,
          .since_answer = std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

}  // namespace hvd

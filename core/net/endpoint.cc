#include "core/net/endpoint.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <system_error>

#include "core/base/error.h"
#include "core/net/socket.h"

namespace hvd {

namespace {

constexpr std::string_view kTcp = "tcp:";
constexpr std::string_view kUnix = "unix:";
constexpr std::size_t kMaxHostBytes = 255;
constexpr std::size_t kMaxAbstractNameBytes = sizeof(sockaddr_un::sun_path) - 1;

Address parse_tcp(std::string_view text, const InvalidArgument& malformed) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) throw malformed;
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);

  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw malformed;
  }
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  const bool whole = error == std::errc() && end == port_text.data() + port_text.size();
  if (!whole || port == 0 || host.empty() || host.size() > kMaxHostBytes) throw malformed;
  return {.kind = Address::Kind::tcp, .host = std::string(host), .port = port};
}

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

constexpr std::size_t kMostAddresses = 16;
constexpr std::uint32_t kLinkLocal = 169 << 8 | 254;  // 169.254.0.0/16: self-assigned without a network

// At least so many if the lease is long enough: one lost packet must not end a connection.
constexpr int kProbes = 4;

}  // namespace

std::string Address::to_string() const {
  if (kind == Kind::unix_abstract) return std::string(kUnix) + host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return std::string(kTcp) + (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Address Address::parse(std::string_view text) {
  const InvalidArgument malformed("'" + std::string(text.substr(0, kMaxHostBytes)) +
                                  "' is not an address like tcp:10.0.0.7:4711, tcp:[::1]:4711 or unix:name");
  if (text.find('\0') != std::string_view::npos) throw malformed;
  if (text.starts_with(kTcp)) return parse_tcp(text.substr(kTcp.size()), malformed);
  if (!text.starts_with(kUnix)) throw malformed;
  text.remove_prefix(kUnix.size());
  if (text.empty() || text.size() > kMaxAbstractNameBytes) throw malformed;
  return {.kind = Kind::unix_abstract, .host = std::string(text), .port = 0};
}

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

std::vector<LocalAddress> local_addresses() {
  std::vector<LocalAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr && addresses.size() < kMostAddresses; entry = entry->ifa_next) {
    const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address{};
    std::memcpy(&address, entry->ifa_addr, sizeof address);
    if ((ntohl(address.sin_addr.s_addr) >> 16) == kLinkLocal) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
    addresses.push_back({.interface = entry->ifa_name, .address = text.data()});
  }
  freeifaddrs(list);
  return addresses;
}

KeepAlive keep_alive(Duration lease) {
  const auto seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(lease).count());
  KeepAlive result;
  result.interval_s = std::max(1, seconds / (kProbes + 1));
  result.probes = std::max(1, (seconds - 1) / result.interval_s);
  result.idle_s = std::max(1, seconds - result.interval_s * result.probes);
  return result;
}

Duration SilenceWatch::look(const Delivery& delivery, TimePoint now) {
  if (!delivery.awaits_answer) {
    since_.reset();
    return Duration::zero();
  }
  since_ = std::max(since_.value_or(now), now - delivery.since_answer);
  return now - *since_;
}

}  // namespace hvd

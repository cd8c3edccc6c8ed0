#include "core/net/endpoint.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/net/authentication.h"

namespace hvd {

namespace {

constexpr std::string_view kTcp = "tcp:";
constexpr std::string_view kUnix = "unix:";
constexpr std::size_t kMaxHostBytes = 255;
constexpr std::size_t kMaxAbstractNameBytes = sizeof(sockaddr_un::sun_path) - 1;

// An IPv4 network, as 10.1.0.0/16, in the host's byte order.
struct Network {
  std::uint32_t address;
  std::uint32_t mask;

  bool contains(const std::string& numeric) const {
    in_addr other{};
    return inet_pton(AF_INET, numeric.c_str(), &other) == 1 && ((ntohl(other.s_addr) ^ address) & mask) == 0;
  }
};

std::optional<Network> parse_network(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  in_addr address{};
  const auto bits = parse_number<unsigned>(std::string_view(text).substr(slash + 1));
  if (inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1 || !bits || *bits > 32) return std::nullopt;
  const std::uint32_t mask = *bits == 0 ? 0 : ~std::uint32_t{0} << (32 - *bits);
  return Network{.address = ntohl(address.s_addr), .mask = mask};
}

Address parse_tcp(std::string_view text, const InvalidArgument& malformed) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) throw malformed;
  std::string_view host = text.substr(0, colon);
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw malformed;
  }
  if (!port || *port == 0 || host.empty() || host.size() > kMaxHostBytes) throw malformed;
  return {.kind = Address::Kind::tcp, .host = std::string(host), .port = *port};
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

constexpr std::string_view kLinkLocal = "169.254.";  // self-assigned without a network

// At least so many if the lease is long enough: one lost packet must not end a connection.
constexpr int kProbes = 4;

// Non-blocking, closed on exec; empty if the kernel does not support the family. Throws Internal (out of descriptors).
FileDescriptor open_stream_socket(int family) {
  FileDescriptor fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd && errno != EAFNOSUPPORT) throw Internal("cannot open a socket: " + error_text(errno));
  return fd;
}

// No delay; a host that is silent for ten seconds, or does not accept what it is sent, counts as dead. No effect on
// Unix sockets.
void tune_stream_socket(int fd, int family) {
  if (family == AF_UNIX) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  keep_alive_for(fd, kUnhurriedLease);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kUnhurriedLease / 1ms));
}

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

constexpr Duration kFirstPause = std::chrono::milliseconds(2);
constexpr Duration kMaxPause = std::chrono::milliseconds(200);

// While there is no listener there is no event to wait for; only another attempt can tell.
void pause_until(TimePoint when) { poll(nullptr, 0, poll_timeout(when)); }

// A TCP connection to a free port of this host can connect to itself (simultaneous open): then there is no listener.
bool connected_to_itself(int fd) {
  const Endpoint own = local_endpoint(fd), other = peer_endpoint(fd);
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
    alarm.poll();
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

std::string Address::to_string() const {
  if (kind == Kind::unix_abstract) return std::string(kUnix) + host;
  return std::string(kTcp) + bracketed(host) + ":" + std::to_string(port);
}

std::string bracketed(const std::string& host) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? "[" + host + "]" : host;
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

const sockaddr* Endpoint::address() const { return reinterpret_cast<const sockaddr*>(&storage); }

sockaddr* Endpoint::address() { return reinterpret_cast<sockaddr*>(&storage); }

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

Endpoint local_endpoint(int fd) {
  Endpoint endpoint{.length = sizeof(sockaddr_storage)};
  if (getsockname(fd, endpoint.address(), &endpoint.length) == 0) return endpoint;
  throw Internal("getsockname: " + error_text(errno));
}

Endpoint peer_endpoint(int fd) {
  Endpoint endpoint{.length = sizeof(sockaddr_storage)};
  return getpeername(fd, endpoint.address(), &endpoint.length) == 0 ? endpoint : Endpoint();
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

std::vector<LocalAddress> local_addresses() {
  std::vector<LocalAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, entry->ifa_addr, sizeof(sockaddr_in));
    const std::string address = endpoint.host();
    if (!address.starts_with(kLinkLocal)) addresses.push_back({.interface = entry->ifa_name, .address = address});
  }
  freeifaddrs(list);
  return addresses;
}

std::vector<std::string> addresses_of(const std::vector<LocalAddress>& own, const std::vector<std::string>& interfaces,
                                      const char* option) {
  std::vector<std::string> result;
  std::string there;
  for (const LocalAddress& entry : own) {
    there += (there.empty() ? "" : ", ") + entry.interface + " (" + entry.address + ")";
    if (interfaces.empty() && result.size() < kMaxAddresses) result.push_back(entry.address);
  }
  for (const std::string& interface : interfaces) {
    const std::optional<Network> network = parse_network(interface);
    for (const LocalAddress& entry : own) {
      const bool named = network ? network->contains(entry.address) : entry.interface == interface;
      if (named && std::ranges::find(result, entry.address) == result.end()) result.push_back(entry.address);
    }
  }
  if (!interfaces.empty() && result.empty()) {
    throw InvalidArgument(std::string(option) + ": none of those is here; there " +
                          (there.empty() ? "is no network" : "are " + there));
  }
  return result;
}

int KeepAlive::limit_s() const { return idle_s + interval_s * probes; }

KeepAlive keep_alive(Duration lease) {
  const auto seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(lease).count());
  KeepAlive result;
  result.interval_s = std::max(1, seconds / (kProbes + 1));
  result.probes = std::max(1, (seconds - 1) / result.interval_s);
  result.idle_s = std::max(1, seconds - result.interval_s * result.probes);
  return result;
}

Duration SilenceWatch::update(const Delivery& delivery, TimePoint now) {
  if (!delivery.awaits_answer) {
    since_.reset();
    return Duration::zero();
  }
  since_ = std::max(since_.value_or(now), now - delivery.since_answer);
  return now - *since_;
}

Listener Listener::tcp(const std::string& host, std::uint16_t port) {
  Address address{.kind = Address::Kind::tcp, .host = host, .port = port};
  std::string cause;
  const auto endpoints = resolve(address, true, cause);
  if (endpoints.empty()) throw InvalidArgument("cannot listen on " + host + ": " + cause);
  FileDescriptor fd = listen_on(endpoints.front(), port == 0 ? host : host + " port " + std::to_string(port));
  address.port = local_endpoint(fd.get()).port();
  return Listener(std::move(fd), std::move(address));
}

Listener Listener::unix_abstract(std::string name) {
  if (name.empty()) {
    std::array<std::byte, 16> random;
    fill_random(random);
    name = "hvd-" + to_hex(random);
  }
  Address address{.kind = Address::Kind::unix_abstract, .host = std::move(name), .port = 0};
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
      // This connection broke before it was accepted; the next may be fine. The errors of the network are those of
      // accept(2).
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
      case ENETDOWN:
      case ENOPROTOOPT:
      case EHOSTDOWN:
      case ENONET:
      case EHOSTUNREACH:
      case EOPNOTSUPP:
      case ENETUNREACH: continue;
      default: throw Internal("cannot accept a connection on " + address_.to_string() + ": " + error_text(errno));
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
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kMaxPause)) {
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
    alarm_clock.poll();
    pause_until(std::min(deadline, now + pause));
  }
}

void Socket::grant_lease(Duration lease) {
  keep_alive_for(fd(), lease);
  set_option(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

Delivery Socket::delivery() const {
  int unconfirmed = 0;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (ioctl(fd(), SIOCOUTQ, &unconfirmed) != 0 || getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
    return {};
  return {.complete = unconfirmed == 0 && info.tcpi_probes == 0,
          .awaits_answer = info.tcpi_unacked > 0 || info.tcpi_probes > 0,
          .since_answer = std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

}  // namespace hvd

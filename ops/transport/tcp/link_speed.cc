#include "ops/transport/tcp/link_speed.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <fstream>
#include <memory>

namespace hvd {

namespace {

std::string numeric_host(const sockaddr* address) {
  const socklen_t length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host.data();
}

std::string interface_with(const std::string& local_host) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if ((family == AF_INET || family == AF_INET6) && numeric_host(entry->ifa_addr) == local_host)
      return entry->ifa_name;
  }
  return "";
}

}  // namespace

int sockets_for_speed(std::optional<int> megabits_per_second) {
  const int speed = megabits_per_second.value_or(0);
  if (speed >= 100'000) return 4;
  return speed >= 25'000 ? 2 : 1;
}

std::optional<int> link_speed(const std::string& local_host) {
  const std::string interface = interface_with(local_host);
  if (interface.empty()) return std::nullopt;
  int speed = -1;  // also written by the kernel if unknown
  std::ifstream("/sys/class/net/" + interface + "/speed") >> speed;
  return speed > 0 ? std::optional(speed) : std::nullopt;
}

}  // namespace hvd

#include "core/net/local_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace hvd {

namespace {

constexpr std::size_t kMostAddresses = 16;
constexpr std::uint32_t kLinkLocal = 169 << 8 | 254;  // 169.254.0.0/16: self-assigned without a network

}  // namespace

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

}  // namespace hvd

#include "ops/transport/tcp_mesh.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/net/endpoint.h"

namespace hvd {

namespace {

using Sockets = std::map<int, std::vector<Socket>>;  // by peer

constexpr std::size_t kNamesInMessage = 8;

std::string store_key(int rank) { return "data/" + std::to_string(rank); }

std::string list_ranks(const std::vector<int>& ranks, const Topology& topology) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamesInMessage); ++i) {
    text += (i == 0 ? "" : ", ") + topology.describe(ranks[i]);
  }
  if (ranks.size() > kNamesInMessage) text += " and " + std::to_string(ranks.size() - kNamesInMessage) + " more";
  return text;
}

// The published entry of a rank.
struct Offer {
  int sockets;                     // on each network
  std::vector<Address> addresses;  // one on each network

  std::string to_string() const {
    std::string text = std::to_string(sockets);
    for (const Address& address : addresses) text += " " + address.to_string();
    return text;
  }

  static Offer parse(const std::string& text) {
    std::istringstream words(text);
    Offer offer{};
    words >> offer.sockets;
    for (std::string word; words >> word;) offer.addresses.push_back(Address::parse(word));
    const bool has_networks = !offer.addresses.empty() && offer.addresses.size() <= kMaxNetworks;
    if (offer.sockets < 1 || offer.sockets > kMaxSocketsPerPeer || !has_networks)
      throw InvalidArgument("'" + text + "' offers no sockets");
    return offer;
  }
};

Offer offer_of(int peer, const MeshSetup& setup) {
  return Offer::parse(setup.store.get(store_key(peer), setup.deadline));
}

std::vector<Socket> connect_to(int peer, const MeshSetup& setup) {
  const auto with_name = [&](const Error& error) {
    return "no data connection to " + setup.topology.describe(peer) + ": " + error.what();
  };
  try {
    const Offer offer = offer_of(peer, setup);
    std::vector<Socket> sockets;
    // Connected sequentially, so that the other end has them in the same order.
    for (int i = 0; i < std::min(offer.sockets, setup.sockets_per_peer); ++i) {
      for (const Address& address : offer.addresses) {
        sockets.push_back(connect_authenticated(address, setup.job_key, Purpose::data, setup.topology.rank,
                                                setup.deadline, setup.store.alarm()));
      }
    }
    return sockets;
  } catch (const Timeout& error) {  // other errors name their subject: an abort's error is not about this peer
    throw Error(Status(error.code(), with_name(error), setup.topology.job_rank_of(peer)));
  } catch (const PeerLost& error) {
    throw PeerLost(with_name(error));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(with_name(error));
  }
}

Peer accept_one(Acceptor& acceptor, const std::vector<int>& missing, const MeshSetup& setup) {
  try {
    return acceptor.accept(setup.deadline, "data connections of " + list_ranks(missing, setup.topology),
                           setup.store.alarm());
  } catch (const Timeout& error) {
    throw Error(Status(error.code(), error.what(), setup.topology.job_rank_of(missing.front())));
  }
}

// The connections accepted from one peer so far, in the order in which it connected them.
class Arrivals {
 public:
  Arrivals(std::size_t networks, int per_network)
      : of_network_(networks), per_network_(static_cast<std::size_t>(per_network)) {}

  // Returns false, and closes the connection, if the peer has all its connections on that network already.
  bool add(Peer peer) {
    auto& there = of_network_.at(peer.listener);
    if (there.size() == per_network_) return false;
    there.push_back(std::move(peer.socket));
    return true;
  }

  bool complete() const {
    return std::ranges::all_of(of_network_, [this](const auto& there) { return there.size() == per_network_; });
  }

  std::vector<Socket> take() {
    std::vector<Socket> sockets;
    for (std::size_t i = 0; i < per_network_; ++i) {
      for (auto& there : of_network_) sockets.push_back(std::move(there[i]));
    }
    return sockets;
  }

 private:
  std::vector<std::vector<Socket>> of_network_;
  const std::size_t per_network_;
};

// Accepts connections until `missing` is empty.
void accept_all(Acceptor& acceptor, std::vector<int> missing, const MeshSetup& setup, Sockets& sockets) {
  std::map<int, Arrivals> arrivals;  // of ranks that have begun to connect
  while (!missing.empty()) {
    Peer peer = accept_one(acceptor, missing, setup);
    const int rank = peer.rank;
    const auto found = std::find(missing.begin(), missing.end(), rank);
    if (found != missing.end() && !arrivals.contains(rank)) {
      arrivals.try_emplace(rank, setup.local_hosts.size(),
                           std::min(offer_of(rank, setup).sockets, setup.sockets_per_peer));
    }
    if (found == missing.end() || !arrivals.at(rank).add(std::move(peer))) {
      setup.log.warning("refused a data connection from rank " + std::to_string(rank) + ", which is not awaited");
      continue;
    }
    if (!arrivals.at(rank).complete()) continue;
    sockets.emplace(rank, arrivals.at(rank).take());
    missing.erase(found);
  }
}

Offer listen_on_all(const MeshSetup& setup, std::vector<Listener>& listeners) {
  Offer offer{.sockets = setup.sockets_per_peer, .addresses = {}};
  for (const std::string& host : setup.local_hosts) {
    listeners.push_back(Listener::tcp(host));
    offer.addresses.push_back(listeners.back().address());
  }
  return offer;
}

}  // namespace

Sockets connect_mesh(const MeshSetup& setup) {
  Sockets sockets;
  const int rank = setup.topology.rank, size = setup.topology.size;
  if (size < 2) return sockets;

  std::vector<Listener> listeners;
  const Offer offer = listen_on_all(setup, listeners);
  Acceptor acceptor(std::move(listeners), setup.job_key, Purpose::data, setup.log);
  setup.store.set(store_key(rank), offer.to_string());
  std::vector<int> higher;
  for (int peer = 0; peer < rank; ++peer) sockets.emplace(peer, connect_to(peer, setup));
  for (int peer = rank + 1; peer < size; ++peer) higher.push_back(peer);
  accept_all(acceptor, std::move(higher), setup, sockets);
  for (auto& [peer, of_peer] : sockets) {
    for (Socket& socket : of_peer) socket.grant_lease(setup.lease);
  }
  return sockets;
}

namespace {

std::string interface_with(const std::string& local_host) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (endpoint.host() == local_host) return entry->ifa_name;
  }
  return "";
}

}  // namespace

int sockets_for_speed(std::optional<int> megabits_per_second) {
  const int speed = megabits_per_second.value_or(0);
  if (speed >= 100'000) return 4;
  return speed >= 25'000 ? 2 : 1;
}

std::vector<std::string> equally_fast(const std::vector<std::string>& addresses,
                                      const std::function<std::optional<int>(const std::string&)>& speed_of) {
  int highest = 0;
  for (const std::string& address : addresses) highest = std::max(highest, speed_of(address).value_or(0));
  std::vector<std::string> result;
  std::ranges::copy_if(addresses, std::back_inserter(result),
                       [&](const std::string& address) { return speed_of(address).value_or(highest) == highest; });
  return result;
}

std::optional<int> link_speed(const std::string& local_host) {
  const std::string interface = interface_with(local_host);
  if (interface.empty()) return std::nullopt;
  int speed = -1;  // also written by the kernel if unknown
  std::ifstream("/sys/class/net/" + interface + "/speed") >> speed;
  return speed > 0 ? std::optional(speed) : std::nullopt;
}

}  // namespace hvd

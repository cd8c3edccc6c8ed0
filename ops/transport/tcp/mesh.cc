#include "ops/transport/tcp/mesh.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::size_t kNamesInMessage = 8;

std::string store_key(int rank) { return "data/" + std::to_string(rank); }

std::string list_ranks(const std::vector<int>& ranks, const DescribeRank& describe) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamesInMessage); ++i) {
    text += (i == 0 ? "" : ", ") + describe(ranks[i]);
  }
  if (ranks.size() > kNamesInMessage) text += " and " + std::to_string(ranks.size() - kNamesInMessage) + " more";
  return text;
}

Socket connect_to(int peer, const MeshSetup& setup) {
  try {
    const Address address = Address::parse(setup.store.get(store_key(peer), setup.deadline));
    return connect_authenticated(address, setup.job_key, Purpose::data, setup.rank, setup.deadline);
  } catch (const Error& error) {
    throw Error(error.code(), "no data connection to " + setup.describe(peer) + ": " + error.what());
  }
}

// Takes connections until none of `missing` is missing any more.
void accept_all(Acceptor& acceptor, std::vector<int> missing, const MeshSetup& setup, std::map<int, Socket>& sockets) {
  while (!missing.empty()) {
    Peer peer = acceptor.accept(setup.deadline, "data connections of " + list_ranks(missing, setup.describe));
    const auto expected = std::find(missing.begin(), missing.end(), peer.rank);
    if (expected == missing.end()) {
      setup.log.warning("refused a data connection from rank " + std::to_string(peer.rank) + ", which is not awaited");
      continue;
    }
    missing.erase(expected);
    sockets.emplace(peer.rank, std::move(peer.socket));
  }
}

}  // namespace

std::map<int, Socket> connect_mesh(const MeshSetup& setup) {
  std::map<int, Socket> sockets;
  if (setup.ranks.size() < 2) return sockets;

  Acceptor acceptor(Listener::tcp(setup.own_host), setup.job_key, Purpose::data, setup.log);
  setup.store.set(store_key(setup.rank), acceptor.address().to_string());
  std::vector<int> higher;
  for (const int peer : setup.ranks) {
    if (peer < setup.rank) sockets.emplace(peer, connect_to(peer, setup));
    if (peer > setup.rank) higher.push_back(peer);
  }
  accept_all(acceptor, std::move(higher), setup, sockets);
  for (auto& [peer, socket] : sockets) socket.let_peer_read_late();
  return sockets;
}

}  // namespace hvd

#include "core/bootstrap/share_with_host.h"

#include <algorithm>

#include "core/bootstrap/exchange_identities.h"

namespace hvd {

namespace {

SharedMemory hand_out(const Topology& topology, Store& store, const JobKey& job_key, const std::string& store_key,
                      const SharedBytes& bytes, const Log& log, Deadline deadline) {
  SharedMemory memory = SharedMemory::create(bytes.all, "hvd-" + store_key, bytes.mapped);
  if (topology.local_size == 1) return memory;

  Acceptor acceptor(Listener::unix_abstract(), job_key, Purpose::shared_memory, log);
  store.set(store_key, acceptor.address().to_string());
  std::vector<int> missing = topology.hosts[static_cast<std::size_t>(topology.host())];
  std::erase(missing, topology.rank);
  while (!missing.empty()) {
    Peer peer = acceptor.accept(deadline,
                                (missing.size() == 1 ? "rank " : "ranks ") + list_ranks(missing) +
                                    " of this host to map the shared memory '" + store_key + "'",
                                alarm_of(store));
    if (std::erase(missing, peer.rank) == 0) {
      log.warning("rank " + std::to_string(peer.rank) + " asked for the shared memory '" + store_key +
                  "' out of turn; refused");
      continue;
    }
    peer.socket.send_descriptor(memory.fd(), deadline, topology.describe(peer.rank));
  }
  return memory;
}

}  // namespace

SharedMemory share_with_host(const Topology& topology, Store& store, const JobKey& job_key, const std::string& key,
                             const SharedBytes& bytes, const Log& log, Deadline deadline) {
  const std::string store_key = "shared_memory/" + key + "/" + std::to_string(topology.host());
  if (topology.local_rank == 0) return hand_out(topology, store, job_key, store_key, bytes, log, deadline);

  const int owner = topology.hosts[static_cast<std::size_t>(topology.host())].front();
  const Address address = Address::parse(store.get(store_key, deadline));
  Socket socket =
      connect_authenticated(address, job_key, Purpose::shared_memory, topology.rank, deadline, alarm_of(store));
  return SharedMemory::map(socket.receive_descriptor(deadline, topology.describe(owner)), bytes.all, bytes.mapped);
}

}  // namespace hvd

// How processes that know their ranks, but no store and no key, come by both: rank 0 hosts the store and tells the
// others. Somebody else carries that first word: MPI, torchrun's store, mpi4py.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "core/base/log.h"
#include "core/net/authentication.h"
#include "core/rendezvous/store_server.h"
#include "core/rendezvous/tcp_store.h"

namespace hvd {

struct Rendezvous {
  int rank = 0;
  int size = 1;
  int local_size = 0;  // ranks on this host; 0: not known
  // All ranks call together: rank 0's bytes are then everyone's. Whoever can read them can join the job. Throws.
  std::function<void(std::span<std::byte> bytes)> broadcast;

  bool one_host() const { return local_size == size; }
};

// A store that all ranks have found; on rank 0, also its server.
struct JobStore {
  JobKey key;
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<TcpStore> store;
};

// All ranks of the rendezvous call together. Throws what broadcast() throws; rank 0's reason, on every rank, if it
// cannot host a store; Timeout or PeerLost if the store cannot be reached at any of rank 0's addresses.
JobStore meet(const Rendezvous& rendezvous, const Log& log, Deadline deadline);

// Where everybody knows the key, and the node and port of rank 0's store.
JobStore rendezvous_at(const Address& address, const JobKey& key, int rank, const Log& log, Deadline deadline);

}  // namespace hvd

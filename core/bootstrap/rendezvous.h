// Gives processes that know their ranks, but have no store and no key, both: rank 0 hosts the store and broadcasts its
// address and key through an existing mechanism: MPI, torchrun's store, mpi4py.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/store_server.h"
#include "core/net/authentication.h"

namespace hvd {

struct Rendezvous {
  int rank = 0;
  int size = 1;
  int local_size = 0;  // ranks on this host; 0: not known
  // All ranks call it together; afterwards all have rank 0's bytes. Any reader of them can join the job. Throws.
  std::function<void(std::span<std::byte> bytes)> broadcast;

  bool one_host() const { return local_size == size; }
};

// A store that all ranks are connected to; on rank 0, also its server.
struct JobStore {
  JobKey key;
  std::unique_ptr<StoreServerThread> server;
  Store store;
};

// All ranks of the rendezvous call together. Throws what broadcast() throws; rank 0's reason, on every rank, if it
// cannot host a store; Timeout or PeerLost if the store cannot be reached at any of rank 0's addresses.
JobStore meet(const Rendezvous& rendezvous, const Log& log, Deadline deadline);

// The same if all ranks know the key, and the node and port of rank 0's store.
JobStore rendezvous_at(const Address& address, const JobKey& key, int rank, const Log& log, Deadline deadline);

}  // namespace hvd

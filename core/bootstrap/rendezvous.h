// How the ranks of a job find each other while they start: the store, and what they exchange through it: their
// identities, whether all of them support an optional feature, and the shared memory of a host.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/store_server.h"
#include "core/bootstrap/topology.h"
#include "core/net/authentication.h"
#include "core/net/shared_memory.h"

namespace hvd {

// For processes that know their ranks, but have no store and no key: rank 0 hosts the store and broadcasts its address
// and key through an existing mechanism: MPI, torchrun's store, mpi4py.
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
JobStore rendezvous_by_broadcast(const Rendezvous& rendezvous, const Log& log, Deadline deadline);

// The same if all ranks know the key, and the node and port of rank 0's store.
JobStore rendezvous_at(const Address& address, const JobKey& key, int rank, const Log& log, Deadline deadline);

// The identity of this process that the other ranks receive. `host_id` and `hostname`, if not empty, replace the
// detected values (HVD_HOST_ID, HVD_HOSTNAME). The host key is made of the kernel's boot id, the network namespace
// (abstract sockets belong to one), the host name and the user (another user's memory must not be mapped).
RankIdentity identify_this_process(const std::string& host_id, const std::string& hostname);

// The first step of the rendezvous. All ranks of the job must call; returns the identities by rank once all have come.
// Rank 0 collects them and publishes the list, or after its deadline which ranks did not come, so that the store
// answers a few requests per rank, not size * size. Throws Timeout that names the ranks that did not come;
// InvalidArgument if another process has come as this rank, usually this one's parent.
std::vector<RankIdentity> exchange_identities(const Store& store, int rank, int size, const RankIdentity& own,
                                              Deadline deadline);

// Checks whether all ranks support an optional feature, before any of them uses it. All ranks call with the same key,
// unique within the store. `objection`: why this rank cannot; empty if it can. Returns the same on every rank: empty if
// all can, else the lowest objecting rank and its reason. Throws Timeout.
std::string first_objection(const Store& store, const Topology& topology, const std::string& key,
                            const std::string& objection, Deadline deadline);

struct SharedBytes {
  std::size_t all;
  std::size_t mapped = SharedMemory::kAll;  // the part that is mapped from the start
};

// Creates shared memory for all ranks of a host: the lowest makes it and passes it to the others over a Unix socket.
// All ranks of the host must call with the same key and sizes; returns when this rank has the memory. `key` is unique
// within the membership epoch, e.g. "control" or "data".
SharedMemory share_with_host(const Topology& topology, const Store& store, const JobKey& job_key,
                             const std::string& key, const SharedBytes& bytes, const Log& log, Deadline deadline);

}  // namespace hvd

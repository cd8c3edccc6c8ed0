// Creates shared memory for all ranks of a host: the lowest makes it and passes it to the others over a Unix socket.
#pragma once

#include <string>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/net/authentication.h"
#include "core/net/shared_memory.h"

namespace hvd {

struct SharedBytes {
  std::size_t all;
  std::size_t mapped = SharedMemory::kAll;  // the part that is mapped from the start
};

// All ranks of the host must call with the same key and sizes; returns when this rank has the memory. `key` is unique
// within the membership epoch, e.g. "control" or "data".
SharedMemory share_with_host(const Topology& topology, Store& store, const JobKey& job_key, const std::string& key,
                             const SharedBytes& bytes, const Log& log, Deadline deadline);

}  // namespace hvd

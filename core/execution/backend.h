// What moves the data of a collective: shared memory, TCP, and later MPI and NCCL. ops/ implements it, the executor
// calls it, on the engine thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/collective/collective_call.h"

namespace hvd {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const = 0;

  // How well this backend suits the call; 0: it cannot do it. Reads only what is the same on every rank of the set,
  // since all ranks must choose alike.
  virtual int score(const CollectiveCall& call) const = 0;

  // Performs the call and returns when outputs are complete and inputs may be reused. Throws PeerLost, Timeout,
  // Aborted or Internal; after a throw the backend is not used again. Outputs are then undefined.
  virtual void run(const CollectiveCall& call) = 0;
};

}  // namespace hvd

// Every collective over a transport, without anything shared between ranks: what is left when ranks are on different
// hosts or must not share memory.
//
// Reductions pack the bucket slice by slice into a buffer of accumulators (packing.h), send that round the ring and
// round once while unpacking; one tensor that is its own accumulator type is reduced in its output, without a buffer.
// Adasum has an algorithm of its own (adasum.h). The other collectives move bytes straight between the tensors. Owned
// by the executor, used on the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/execution/backend.h"
#include "ops/algorithms/scratch.h"
#include "ops/algorithms/slice_layout.h"
#include "ops/transport/transport.h"

namespace hvd {

class TransportBackend final : public Backend {
 public:
  // The transport reaches all ranks from 0 to size() - 1. A run() ends with a Timeout after `timeout`.
  TransportBackend(std::string name, std::shared_ptr<Transport> transport, Duration timeout);

  const char* name() const override { return name_.c_str(); }
  int score(const CollectiveCall& call) const override;
  void run(const CollectiveCall& call) override;

 private:
  // Who takes part in a call, and until when.
  struct Party;
  class SliceMessages;

  void allreduce(const CollectiveCall& call, const Party& party);
  void reducescatter(const CollectiveCall& call, const Party& party);
  void allgather(const CollectiveCall& call, const Party& party);
  void broadcast(const CollectiveCall& call, const Party& party);
  void alltoall(const CollectiveCall& call, const Party& party);

  const std::string name_;
  const std::shared_ptr<Transport> transport_;
  const Duration timeout_;
  Scratch scratch_;
};

}  // namespace hvd

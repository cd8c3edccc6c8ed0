// The backend that performs every collective over a transport, without memory shared between ranks: used if ranks are
// on different hosts or must not share memory.
//
// Reductions run on packed buffers, sliced by the tensors' own sizes: an algorithm (allreduce.h) has them
// filled and emptied range by range (packing.h). One tensor is its own packed buffer; it needs additional memory only
// for accumulators of another type. Adasum has a separate algorithm (adasum.cc). The other collectives move bytes
// directly between the tensors. Owned by the executor, used on the thread that drives the engine.
#pragma once

#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/execution/backend.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/vote_exchange.h"
#include "ops/transport/transport.h"

namespace hvd {

// The transport connects all ranks from 0 to size() - 1. A run() ends with a Timeout after `timeout`. `votes`: the
// exchange between all these ranks; if it is null, the backend cannot be asked.
std::unique_ptr<Backend> make_transport_backend(std::string name, std::shared_ptr<Transport> transport,
                                                Duration timeout, ChooseAllreduce choose_allreduce,
                                                InstructionSet instruction_set = InstructionSet::automatic,
                                                std::shared_ptr<VoteExchange> votes = nullptr);

}  // namespace hvd

// The backend that performs every collective over a transport, without memory shared between ranks: used if ranks are
// on different hosts or must not share memory.
//
// Reductions run on packed buffers, sliced by the tensors' own sizes: an algorithm (allreduce.h) has them
// filled and emptied range by range (packing.h). One tensor is its own packed buffer; it needs additional memory only
// for accumulators of another type. Adasum has a separate algorithm (adasum.cc). The other collectives move bytes
// directly between the tensors. Owned by the executor, used on the thread that drives the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/execution/backend.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/packing.h"
#include "ops/algorithms/word_exchange.h"
#include "ops/transport/transport.h"

namespace hvd {

class TransportBackend final : public Backend {
 public:
  // The transport connects all ranks from 0 to size() - 1. A run() ends with a Timeout after `timeout`. `words`: of all
  // these ranks; without it the backend cannot be asked.
  TransportBackend(std::string name, std::shared_ptr<Transport> transport, Duration timeout,
                   ChooseAllreduce choose_allreduce, InstructionSet instruction_set = InstructionSet::automatic,
                   std::shared_ptr<WordExchange> words = nullptr);

  const char* name() const override { return name_.c_str(); }
  int score(const CollectiveCall& call) const override;
  void run(const CollectiveCall& call) override;
  bool can_be_asked(const ProcessSet& set) const override;
  void decline(const ProcessSet& set, std::uint32_t call_id) override;
  void set_late_callback(Duration timeout, const std::function<bool()>& late) override;

 private:
  // Asks for the call, unless the ranks have agreed on it.
  void ask(const CollectiveCall& call);
  void allreduce(const CollectiveCall& call, const Party& party);
  // Sends the values with the words of an asking call.
  void allreduce_asking(const CollectiveCall& call, const Party& party, const SliceLayout& layout);
  void reducescatter(const CollectiveCall& call, const Party& party);
  void allgather(const CollectiveCall& call, const Party& party);
  void broadcast(const CollectiveCall& call, const Party& party);
  void alltoall(const CollectiveCall& call, const Party& party);

  // The call's tensors as the argument of an algorithm; valid as long as the call and the layout.
  SlicedReduction packed_reduction(const CollectiveCall& call, const Party& party, const SliceLayout& layout,
                                   DType value_type, UnpackTo place);

  const std::string name_;
  const std::shared_ptr<Transport> transport_;
  const Duration timeout_;
  const ChooseAllreduce choose_allreduce_;
  const InstructionSet instruction_set_;
  const std::shared_ptr<WordExchange> words_;  // may be null
  Scratch scratch_;
};

}  // namespace hvd

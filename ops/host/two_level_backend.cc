#include "ops/host/two_level_backend.h"

#include <utility>

#include "core/tensor/tensor_view.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/packing.h"
#include "ops/host/two_level_pass.h"

namespace hvd {

TwoLevelBackend::TwoLevelBackend(std::shared_ptr<HostCommunicator> group, std::shared_ptr<Transport> transport,
                                 const Topology& topology, std::shared_ptr<WordExchange> words, Duration timeout,
                                 ChooseAllreduce choose_allreduce, InstructionSet instruction_set)
    : group_(std::move(group)),
      transport_(std::move(transport)),
      words_(std::move(words)),
      timeout_(timeout),
      choose_allreduce_(std::move(choose_allreduce)),
      instruction_set_(instruction_set),
      ranks_(topology.size),
      host_(topology.host()),
      worthwhile_(topology.hosts.size() > 1 && topology.hosts.size() < static_cast<std::size_t>(topology.size)) {
  for (const auto& ranks : topology.hosts) leaders_.push_back(ranks.front());
}

int TwoLevelBackend::score(const CollectiveCall& call) const {
  const bool suits = worthwhile_ && call.collective == Collective::allreduce && call.device == kCpuDevice &&
                     call.set->size() == ranks_ && reduction_exists(call.dtype, call.op);
  return suits ? 50 : 0;
}

void TwoLevelBackend::run(const CollectiveCall& call) {
  if (call.entry == Entry::asking) words_->ask(*call.set, call.call_id);
  const SliceLayout layout = balanced_layout(call, static_cast<int>(leaders_.size()));
  if (group_->rank() == 0) {
    lead(call, layout);
  } else {
    TwoLevelPass(*group_, call, layout, host_, {}, instruction_set_).follow();
  }
  scratch_.release_large();
}

void TwoLevelBackend::lead(const CollectiveCall& call, const SliceLayout& layout) {
  const DType accumulator = accumulator_of(call.dtype);
  const PackedMemory memory = packed_memory(layout, accumulator, call.dtype, only_output(call), scratch_);
  TwoLevelPass pass(*group_, call, layout, host_, memory, instruction_set_);
  const SlicedReduction between_hosts{
      .transport = *transport_,
      .members = leaders_,
      .position = host_,
      .reduction = {.dtype = call.dtype,
                    .op = call.op,
                    .postscale = call.postscale,
                    .instruction_set = instruction_set_},
      .value_type = accumulator,
      .values = memory.values,
      .results = memory.results,
      .slice_bounds = layout.slice_bounds(),
      .tag = {.process_set = static_cast<std::uint32_t>(call.set->id), .sequence = call.sequence},
      .deadline = deadline_after(timeout_),
      .ready = [&pass](std::int64_t begin, std::int64_t end) { pass.make_ready(begin, end); },
      .complete = [&pass](std::int64_t begin, std::int64_t end) { pass.complete(begin, end); }};
  const AllreduceSize size{.bytes = static_cast<std::size_t>(layout.total_elements()) * size_of(call.dtype),
                           .ranks = static_cast<int>(leaders_.size())};
  run_allreduce(choose_allreduce_(size), between_hosts);
}

}  // namespace hvd

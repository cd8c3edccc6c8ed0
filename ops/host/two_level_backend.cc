#include "ops/host/two_level_backend.h"

#include <utility>

#include "core/tensor/tensor_view.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/slice_layout.h"

namespace hvd {

namespace {

SliceLayout layout_of(const CollectiveCall& call, int hosts) {
  std::vector<std::int64_t> elements;
  for (const Piece& piece : call.pieces) elements.push_back(piece.elements);
  return SliceLayout::balanced(elements, hosts);
}

// The call's tensors in the order in which the ring's buffer holds them.
std::vector<Piece> slices_of(const CollectiveCall& call, const SliceLayout& layout) {
  const std::size_t size = size_of(call.dtype);
  std::vector<Piece> slices;
  for (int slice = 0; slice < layout.slices(); ++slice) {
    for (std::size_t p = 0; p < call.pieces.size(); ++p) {
      const SliceLayout::Part& part = layout.part(slice, p);
      slices.push_back({.input = advance(call.pieces[p].input, part.offset, size),
                        .output = advance(call.pieces[p].output, part.offset, size),
                        .elements = part.count});
    }
  }
  return slices;
}

}  // namespace

TwoLevelBackend::TwoLevelBackend(std::shared_ptr<HostGroup> group, std::shared_ptr<Transport> transport,
                                 const Topology& topology, Duration timeout, ChooseAllreduce choose_allreduce,
                                 InstructionSet instruction_set)
    : group_(std::move(group)),
      transport_(std::move(transport)),
      timeout_(timeout),
      choose_allreduce_(std::move(choose_allreduce)),
      instruction_set_(instruction_set),
      host_(topology.host()),
      worthwhile_(topology.hosts.size() > 1 && topology.hosts.size() < static_cast<std::size_t>(topology.size)) {
  for (const auto& ranks : topology.hosts) leaders_.push_back(ranks.front());
}

int TwoLevelBackend::score(const CollectiveCall& call) const {
  const bool suits = worthwhile_ && call.collective == Collective::allreduce && call.device == kCpuDevice &&
                     call.set->id == kGlobalProcessSet && reduction_exists(call.dtype, call.op);
  return suits ? 50 : 0;
}

void TwoLevelBackend::run(const CollectiveCall& call) {
  const SliceLayout layout = layout_of(call, static_cast<int>(leaders_.size()));
  std::vector<Piece> slices = slices_of(call, layout);
  const Reduction reduction{.dtype = call.dtype,
                            .op = call.op,
                            .prescale = call.prescale,
                            .postscale = call.postscale,
                            .instruction_set = instruction_set_};
  const bool leads = group_->rank() == 0;

  const auto total = static_cast<std::size_t>(leads ? layout.total_elements() : 0);
  const DType accumulator = accumulator_of(call.dtype);
  const auto accumulators = std::make_unique_for_overwrite<std::byte[]>(total * size_of(accumulator));
  const auto results = std::make_unique_for_overwrite<std::byte[]>(total * size_of(call.dtype));
  group_->reduce_to_leader(slices, reduction, leads ? accumulators.get() : nullptr);

  if (leads) {
    const std::byte* next = results.get();
    reduce_between_hosts(call, layout, accumulators.get(), results.get());
    for (Piece& slice : slices) {
      slice.input = next;
      next += static_cast<std::size_t>(slice.elements) * size_of(call.dtype);
    }
  }
  group_->broadcast_from_leader(slices, call.dtype);
}

void TwoLevelBackend::reduce_between_hosts(const CollectiveCall& call, const SliceLayout& layout,
                                           std::byte* accumulators, std::byte* results) {
  const auto algorithm =
      choose_allreduce_({.bytes = static_cast<std::size_t>(layout.total_elements()) * size_of(call.dtype),
                         .ranks = static_cast<int>(leaders_.size())});
  run_allreduce(algorithm, {.transport = *transport_,
                            .members = leaders_,
                            .position = host_,
                            .reduction = {.dtype = call.dtype,
                                          .op = call.op,
                                          .postscale = call.postscale,
                                          .instruction_set = instruction_set_},
                            .value_type = accumulator_of(call.dtype),
                            .values = accumulators,
                            .results = results,
                            .slice_bounds = layout.slice_bounds(),
                            .tag = {.process_set = static_cast<std::uint32_t>(call.set->id), .sequence = call.sequence},
                            .deadline = deadline_after(timeout_)});
}

}  // namespace hvd

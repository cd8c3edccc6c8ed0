#include "ops/host/two_level_backend.h"

#include <utility>

#include "core/tensor/tensor_view.h"
#include "ops/algorithms/ring_allreduce.h"
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
                                 const Topology& topology, Duration timeout)
    : group_(std::move(group)),
      transport_(std::move(transport)),
      timeout_(timeout),
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
  const Reduction reduction{.dtype = call.dtype, .op = call.op, .prescale = call.prescale, .postscale = call.postscale};
  const bool leads = group_->rank() == 0;

  const auto total = static_cast<std::size_t>(leads ? layout.total_elements() : 0);
  const DType accumulator = accumulator_of(call.dtype);
  const auto accumulators = std::make_unique_for_overwrite<std::byte[]>(total * size_of(accumulator));
  group_->reduce_to_leader(slices, reduction, leads ? accumulators.get() : nullptr);

  if (leads) {
    reduce_between_hosts(call, accumulators.get(), layout.slice_bounds());
    // Rounded into the same memory: a result is never longer than its accumulator, and lies before it.
    const void* const input[] = {accumulators.get()};
    reduce({.dtype = call.dtype, .op = call.op, .postscale = call.postscale}, accumulator, input, call.dtype,
           accumulators.get(), total);
    const std::byte* next = accumulators.get();
    for (Piece& slice : slices) {
      slice.input = next;
      next += static_cast<std::size_t>(slice.elements) * size_of(call.dtype);
    }
  }
  group_->broadcast_from_leader(slices, call.dtype);
}

void TwoLevelBackend::reduce_between_hosts(const CollectiveCall& call, std::byte* accumulators,
                                           std::span<const std::int64_t> slice_bounds) {
  const Tag tag{.process_set = static_cast<std::uint32_t>(call.set->id), .step = 0, .sequence = call.sequence};
  ring_allreduce(*transport_, leaders_, host_, accumulator_of(call.dtype), call.op, accumulators, slice_bounds, tag,
                 deadline_after(timeout_));
}

}  // namespace hvd

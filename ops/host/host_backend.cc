#include "ops/host/host_backend.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/tensor_view.h"
#include "ops/algorithms/adasum.h"

namespace hvd {

namespace {

// Adasum's exchanges through the window.
class SliceWindow final : public SliceExchange {
 public:
  explicit SliceWindow(HostCommunicator& group) : group_(group) {}

  void scatter(const std::byte* blocks, std::span<const std::int64_t> bounds, std::byte* own) override {
    const HostCommunicator::Counts from_each(static_cast<std::size_t>(group_.ranks()), sizes(bounds));
    group_.alltoall({.input = blocks, .output = own, .elements = bounds.back()}, from_each, DType::uint8);
  }

  void gather(std::byte* blocks, std::span<const std::int64_t> bounds) override {
    const auto own = static_cast<std::size_t>(group_.rank());
    const Piece piece{.input = blocks + bounds[own], .output = blocks, .elements = bounds[own + 1] - bounds[own]};
    group_.allgather({&piece, 1}, {sizes(bounds)}, DType::uint8);
  }

 private:
  static std::vector<std::int64_t> sizes(std::span<const std::int64_t> bounds) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) sizes.push_back(bounds[i + 1] - bounds[i]);
    return sizes;
  }

  HostCommunicator& group_;
};

// Whether any rank has data for another one. A rank's data for itself in an alltoall takes no step.
bool moves_anything(const CollectiveCall& call) {
  if (call.counts.empty()) return call.total_elements() > 0;
  for (std::size_t row = 0; row < call.counts.size(); ++row) {
    for (std::size_t rank = 0; rank < call.counts[row].size(); ++rank) {
      const bool own = call.collective == Collective::alltoall && rank == row;
      if (!own && call.counts[row][rank] > 0) return true;
    }
  }
  return false;
}

}  // namespace

HostBackend::HostBackend(std::shared_ptr<HostCommunicator> group, const Topology& topology,
                         InstructionSet instruction_set)
    : group_(std::move(group)), hosts_(topology.hosts), instruction_set_(instruction_set) {}

int HostBackend::score(const CollectiveCall& call) const {
  if (call.device != kCpuDevice || call.collective == Collective::join) return 0;
  const bool reduces = call.collective == Collective::allreduce || call.collective == Collective::reducescatter;
  if (reduces && !reduction_exists(call.dtype, call.op) && !is_adasum(call)) return 0;
  return is_host(*call.set) ? 100 : 0;
}

bool HostBackend::is_host(const ProcessSet& set) const {
  return std::find(hosts_.begin(), hosts_.end(), set.ranks) != hosts_.end();
}

bool HostBackend::can_be_asked(const ProcessSet& set) const { return is_host(set); }

void HostBackend::decline(const ProcessSet&, std::uint32_t call_id) {
  if (group_->ranks() > 1) group_->decline(call_id);
}

void HostBackend::tune(const Knobs& knobs) { group_->use_chunks(static_cast<std::size_t>(knobs.chunk_bytes)); }

void HostBackend::set_late_callback(Duration timeout, const std::function<bool()>& late) {
  group_->set_late_callback(timeout, late);
}

void HostBackend::run(const CollectiveCall& call) {
  group_->enter(call.entry, call.call_id);
  const bool takes_steps = call.collective == Collective::barrier || moves_anything(call);
  if (call.entry == Entry::asking && !takes_steps) group_->barrier();
  move(call);
}

void HostBackend::move(const CollectiveCall& call) {
  if (is_adasum(call)) {
    SliceWindow exchange(*group_);
    adasum(call, group_->rank(), exchange, scratch_, instruction_set_);
    return scratch_.release_large();
  }
  const Reduction reduction{.dtype = call.dtype,
                            .op = call.op,
                            .prescale = call.prescale,
                            .postscale = call.postscale,
                            .instruction_set = instruction_set_};
  switch (call.collective) {
    case Collective::allreduce: return group_->allreduce(call.pieces, reduction);
    case Collective::allgather: return group_->allgather(call.pieces, call.counts, call.dtype);
    case Collective::broadcast: return group_->broadcast(call.pieces, call.dtype, call.root);
    case Collective::reducescatter: return group_->reducescatter(call.pieces, call.counts, reduction);
    case Collective::barrier: return group_->barrier();
    case Collective::alltoall:
      if (call.pieces.size() != 1) throw Internal("alltoall of several tensors in one call");
      return group_->alltoall(call.pieces[0], call.counts, call.dtype);
    case Collective::join: throw Internal("join moves no data");
  }
}

}  // namespace hvd

#include "ops/host/collectives.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/packing.h"

namespace hvd {

namespace {

// Adasum's exchanges through the window.
class SliceWindow final : public SliceExchange {
 public:
  explicit SliceWindow(HostContext& context) : context_(context) {}

  void scatter(const std::byte* blocks, std::span<const std::int64_t> bounds, std::byte* own) override {
    const HostCounts from_each(static_cast<std::size_t>(context_.ranks()), sizes(bounds));
    host_alltoall(context_, {.input = blocks, .output = own, .elements = bounds.back()}, from_each, DType::uint8);
  }

  void gather(std::byte* blocks, std::span<const std::int64_t> bounds) override {
    const auto own = static_cast<std::size_t>(context_.rank());
    const Piece piece{.input = blocks + bounds[own], .output = blocks, .elements = bounds[own + 1] - bounds[own]};
    host_allgather(context_, {&piece, 1}, {sizes(bounds)}, DType::uint8);
  }

 private:
  static std::vector<std::int64_t> sizes(std::span<const std::int64_t> bounds) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) sizes.push_back(bounds[i + 1] - bounds[i]);
    return sizes;
  }

  HostContext& context_;
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

// Adapts the collectives of a host to the executor's interface.
class HostBackend final : public Backend {
 public:
  HostBackend(std::shared_ptr<HostContext> context, const Topology& topology, InstructionSet instruction_set)
      : context_(std::move(context)), hosts_(topology.hosts), instruction_set_(instruction_set) {}

  const char* name() const override { return "shared-memory"; }

  int score(const CollectiveCall& call) const override {
    if (call.device != kCpuDevice || call.collective == Collective::join) return 0;
    const bool reduces = call.collective == Collective::allreduce || call.collective == Collective::reducescatter;
    if (reduces && !reduction_exists(call.dtype, call.op) && !is_adasum(call)) return 0;
    return is_host(*call.set) ? 100 : 0;
  }

  void run(const CollectiveCall& call) override {
    context_->window.enter(call.entry, call.call_id, call.driving_thread);
    const bool takes_steps = call.collective == Collective::barrier || moves_anything(call);
    if (call.entry == EntryMode::asking && !takes_steps) host_barrier(*context_);
    move(call);
  }

  bool post(const CollectiveCall& call) override {
    if (context_->ranks() == 1) return true;
    Window& window = context_->window;
    const std::int64_t elements = call.total_elements();
    const bool fits_payload = call.collective == Collective::allreduce && !is_adasum(call) && elements > 0 &&
                              elements * static_cast<std::int64_t>(size_of(call.dtype)) <= kHostPayloadBytes;
    if (!fits_payload || !window.can_open_step()) return false;
    window.enter(call.entry, call.call_id, call.driving_thread);
    window.waits().begin("allreduce");
    begin_inline_payload_allreduce(*context_, call.pieces, reduction_of(call), elements);
    return true;
  }

  void wait_posted(const CollectiveCall& call) override {
    if (context_->ranks() == 1) return run(call);
    context_->window.waits().set_driving_thread(call.driving_thread);
    finish_inline_payload_allreduce(*context_, call.pieces, reduction_of(call), call.total_elements());
  }

  bool can_be_asked(const ProcessSet& set) const override { return is_host(set); }

  void decline(const ProcessSet&, std::uint32_t call_id) override {
    if (context_->ranks() > 1) context_->window.decline(call_id);
  }

  void tune(const Knobs& knobs) override { context_->window.use_chunks(static_cast<std::size_t>(knobs.chunk_bytes)); }

  void set_late_callback(Duration timeout, const std::function<bool()>& late) override {
    context_->window.waits().set_late_callback(timeout, late);
  }

 private:
  bool is_host(const ProcessSet& set) const {
    return std::find(hosts_.begin(), hosts_.end(), set.ranks) != hosts_.end();
  }

  Reduction reduction_of(const CollectiveCall& call) const {
    return {.dtype = call.dtype,
            .op = call.op,
            .prescale = call.prescale,
            .postscale = call.postscale,
            .instruction_set = instruction_set_};
  }

  void move(const CollectiveCall& call) {
    if (is_adasum(call)) {
      SliceWindow exchange(*context_);
      adasum(call, context_->rank(), exchange, scratch_, instruction_set_);
      return scratch_.release_large();
    }
    const Reduction reduction = reduction_of(call);
    switch (call.collective) {
      case Collective::allreduce: return host_allreduce(*context_, call.pieces, reduction);
      case Collective::allgather: return host_allgather(*context_, call.pieces, call.counts, call.dtype);
      case Collective::broadcast: return host_broadcast(*context_, call.pieces, call.dtype, call.root);
      case Collective::reducescatter: return host_reducescatter(*context_, call.pieces, call.counts, reduction);
      case Collective::barrier: return host_barrier(*context_);
      case Collective::alltoall:
        if (call.pieces.size() != 1) throw Internal("alltoall of several tensors in one call");
        return host_alltoall(*context_, call.pieces[0], call.counts, call.dtype);
      case Collective::join: throw Internal("join moves no data");
    }
  }

  const std::shared_ptr<HostContext> context_;
  const std::vector<std::vector<int>> hosts_;  // ranks by host
  const InstructionSet instruction_set_;
  Scratch scratch_;  // of Adasum, which runs in ordinary memory
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(std::shared_ptr<HostContext> context, const Topology& topology,
                                           InstructionSet instruction_set) {
  return std::make_unique<HostBackend>(std::move(context), topology, instruction_set);
}

}  // namespace hvd

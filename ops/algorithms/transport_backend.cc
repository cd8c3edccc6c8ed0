#include "ops/algorithms/transport_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "ops/algorithms/packing.h"
#include "ops/reduction/reduce.h"

namespace hvd {

namespace {

constexpr int kScore = 10;

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reducescatter;
}

// The beginnings, in bytes, of blocks with these numbers of elements, and the end of the last one.
std::vector<std::int64_t> byte_bounds(const std::vector<std::int64_t>& counts, DType dtype) {
  std::vector<std::int64_t> bounds{0};
  for (const std::int64_t count : counts) {
    bounds.push_back(bounds.back() + count * static_cast<std::int64_t>(size_of(dtype)));
  }
  return bounds;
}

// memmove that allows null pointers for zero bytes.
void move_bytes(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0 && target != source) std::memmove(target, source, bytes);
}

// Whether all values fit into the payloads, and messages would carry them unreduced anyway: the sums are the same then.
bool fits_payload(const CollectiveCall& call, const SliceLayout& layout, AllreduceAlgorithm algorithm,
                  VoteExchange& votes) {
  const bool whole = algorithm == AllreduceAlgorithm::one_shot || algorithm == AllreduceAlgorithm::bruck;
  return whole && bytes_of(layout.total_elements(), call.dtype) <= VoteExchange::kPayloadBytes &&
         votes.local_payload() != nullptr;
}

// Adasum's exchanges: one after the other, each with separate steps in the tags.
class SliceMessages final : public SliceExchange {
 public:
  explicit SliceMessages(const ExchangeContext& context) : context_(context) {}

  void scatter(const std::byte* blocks, std::span<const std::int64_t> bounds, std::byte* own) override {
    const std::int64_t size = bounds[context_.index() + 1] - bounds[context_.index()];
    std::vector<std::int64_t> local_bounds{0};
    for (std::size_t i = 0; i < context_.members.size(); ++i) local_bounds.push_back(local_bounds.back() + size);
    pairwise_alltoall(next(), blocks, bounds, own, local_bounds);
  }

  void gather(std::byte* blocks, std::span<const std::int64_t> bounds) override {
    pairwise_allgather(next(), blocks, bounds);
  }

 private:
  ExchangeContext next() {
    const ExchangeContext now = context_;
    context_.tag.step += static_cast<std::uint32_t>(context_.members.size());
    return now;
  }

  ExchangeContext context_;
};

class TransportBackend final : public Backend {
 public:
  TransportBackend(std::string name, std::shared_ptr<Transport> transport, Duration timeout,
                   ChooseAllreduce choose_allreduce, InstructionSet instruction_set,
                   std::shared_ptr<VoteExchange> votes)
      : name_(std::move(name)),
        transport_(std::move(transport)),
        timeout_(timeout),
        choose_allreduce_(std::move(choose_allreduce)),
        instruction_set_(instruction_set),
        votes_(std::move(votes)) {}

  const char* name() const override { return name_.c_str(); }

  int score(const CollectiveCall& call) const override {
    if (call.device != kCpuDevice || call.collective == Collective::join) return 0;
    if (call.set->ranks.empty() || call.set->ranks.back() >= transport_->size()) return 0;
    if (reduces(call.collective) && !reduction_exists(call.dtype, call.op) && !is_adasum(call)) return 0;
    return kScore;
  }

  void run(const CollectiveCall& call) override {
    if (call.collective != Collective::allreduce) ask(call);
    const auto position = call.set->rank_of(transport_->rank());
    if (!position) throw Internal("asked to take part in a collective of a process set without this rank");
    const ExchangeContext context{
        .transport = *transport_,
        .members = call.set->ranks,
        .position = *position,
        .tag = {.process_set = static_cast<std::uint32_t>(call.set->id), .sequence = call.sequence},
        .deadline = deadline_after(timeout_)};
    switch (call.collective) {
      case Collective::allreduce: allreduce(call, context); break;
      case Collective::reducescatter: reducescatter(call, context); break;
      case Collective::allgather: allgather(call, context); break;
      case Collective::broadcast: broadcast(call, context); break;
      case Collective::alltoall: alltoall(call, context); break;
      case Collective::barrier:
        if (call.entry == EntryMode::asking) break;  // all ranks have asked, so all have arrived
        dissemination_barrier(context);
        break;
      case Collective::join: throw Unsupported("join moves no data");
    }
    scratch_.release_large();
  }

  bool can_be_asked(const ProcessSet& set) const override {
    return votes_ != nullptr && set.size() == transport_->size();
  }

  void decline(const ProcessSet& set, std::uint32_t call_id) override { votes_->decline(set, call_id); }

  void set_late_callback(Duration timeout, const std::function<bool()>& late) override {
    if (votes_ != nullptr) votes_->set_late_callback(timeout, late);
  }

 private:
  // Asks for the call, unless the ranks have agreed on it.
  void ask(const CollectiveCall& call) {
    if (call.entry == EntryMode::asking) votes_->ask(*call.set, call.call_id);
  }

  void allreduce(const CollectiveCall& call, const ExchangeContext& context) {
    if (is_adasum(call)) {
      ask(call);
      SliceMessages exchange(context);
      adasum(call, context.position, exchange, scratch_, instruction_set_);
      return;
    }
    const auto layout = balanced_layout(call, static_cast<int>(context.members.size()));
    const DType accumulator = accumulator_of(call.dtype);
    const auto algorithm =
        choose_allreduce_({.bytes = bytes_of(layout.total_elements(), call.dtype),
                           .ranks = static_cast<int>(context.members.size()),
                           .widening = static_cast<int>(size_of(accumulator) / size_of(call.dtype))});
    if (call.entry == EntryMode::asking && fits_payload(call, layout, algorithm, *votes_)) {
      return allreduce_asking(call, context, layout);
    }
    ask(call);
    run_allreduce(algorithm, packed_reduction(call, context, layout, value_type_of(algorithm, call.dtype),
                                              UnpackTo::place_in_piece));
  }

  // Sends the values with the votes of an asking call.
  void allreduce_asking(const CollectiveCall& call, const ExchangeContext& context, const SliceLayout& layout) {
    const SlicedReduction args = packed_reduction(call, context, layout, call.dtype, UnpackTo::place_in_piece);
    pack(call, layout, 0, layout.total_elements(), call.dtype, votes_->local_payload(), instruction_set_);
    ask(call);
    std::vector<const std::byte*> values;
    for (const int rank : context.members) values.push_back(votes_->payload(rank));
    args.fold_all(values);
    args.make_all_complete();
  }

  void reducescatter(const CollectiveCall& call, const ExchangeContext& context) {
    const auto layout = SliceLayout::with_counts(call.counts, static_cast<int>(context.members.size()));
    ring_reducescatter(packed_reduction(call, context, layout, accumulator_of(call.dtype), UnpackTo::start_of_output));
  }

  void allgather(const CollectiveCall& call, const ExchangeContext& context) {
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
      const Piece& piece = call.pieces[i];
      const auto bounds = byte_bounds(call.counts[i], call.dtype);
      // A joined rank forwards data that it does not keep.
      std::byte* gathered = piece.output != nullptr ? static_cast<std::byte*>(piece.output)
                                                    : scratch_.take(static_cast<std::size_t>(bounds.back()));
      move_bytes(gathered + bounds[context.index()], piece.input,
                 bytes_of(call.counts[i][context.index()], call.dtype));
      ring_allgather(context, gathered, bounds);
    }
  }

  void broadcast(const CollectiveCall& call, const ExchangeContext& context) {
    for (const Piece& piece : call.pieces) {
      const std::size_t bytes = bytes_of(piece.elements, call.dtype);
      std::byte* data = piece.output != nullptr ? static_cast<std::byte*>(piece.output) : scratch_.take(bytes);
      if (context.position == call.root) move_bytes(data, piece.input, bytes);
      chain_broadcast(context, call.root, {data, bytes});
    }
  }

  void alltoall(const CollectiveCall& call, const ExchangeContext& context) {
    const Piece& piece = call.pieces.front();
    std::vector<std::int64_t> from_each;
    for (const auto& row : call.counts) from_each.push_back(row[context.index()]);
    const auto input_bounds = byte_bounds(call.counts[context.index()], call.dtype);
    const auto output_bounds = byte_bounds(from_each, call.dtype);

    const auto* input = static_cast<const std::byte*>(piece.input);
    auto* output = static_cast<std::byte*>(piece.output);
    if (input == output) {
      const auto bytes = static_cast<std::size_t>(input_bounds.back());
      std::byte* copy = scratch_.take(bytes);
      move_bytes(copy, input, bytes);
      input = copy;
    }
    pairwise_alltoall(context, input, input_bounds, output, output_bounds);
  }

  // The call's tensors as the argument of an algorithm; valid as long as the call and the layout.
  SlicedReduction packed_reduction(const CollectiveCall& call, const ExchangeContext& context,
                                   const SliceLayout& layout, DType value_type, UnpackTo place) {
    std::byte* const tensor = place == UnpackTo::place_in_piece ? only_output(call) : nullptr;
    const PackedMemory memory = packed_memory(layout, value_type, call.dtype, tensor, scratch_);
    SlicedReduction args{.transport = *transport_,
                         .members = context.members,
                         .position = context.position,
                         .reduction = {.dtype = call.dtype,
                                       .op = call.op,
                                       .postscale = call.postscale,
                                       .instruction_set = instruction_set_},
                         .value_type = value_type,
                         .values = memory.values,
                         .results = memory.results,
                         .slice_bounds = layout.slice_bounds(),
                         .tag = context.tag,
                         .deadline = context.deadline};
    if (value_type != accumulator_of(call.dtype)) args.reduction.prescale = call.prescale;
    args.ready = [this, &call, &layout, value_type, memory](std::int64_t begin, std::int64_t end) {
      pack(call, layout, begin, end, value_type, memory.values, instruction_set_);
    };
    if (memory.results != tensor) {
      args.complete = [&call, &layout, place, memory](std::int64_t begin, std::int64_t end) {
        unpack(call, layout, begin, end, place, memory.results);
      };
    }
    return args;
  }

  const std::string name_;
  const std::shared_ptr<Transport> transport_;
  const Duration timeout_;
  const ChooseAllreduce choose_allreduce_;
  const InstructionSet instruction_set_;
  const std::shared_ptr<VoteExchange> votes_;  // may be null
  Scratch scratch_;
};

}  // namespace

std::unique_ptr<Backend> make_transport_backend(std::string name, std::shared_ptr<Transport> transport,
                                                Duration timeout, ChooseAllreduce choose_allreduce,
                                                InstructionSet instruction_set, std::shared_ptr<VoteExchange> votes) {
  return std::make_unique<TransportBackend>(std::move(name), std::move(transport), timeout, std::move(choose_allreduce),
                                            instruction_set, std::move(votes));
}

}  // namespace hvd

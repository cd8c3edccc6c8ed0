#include "ops/two_level/two_level.h"

#include <algorithm>
#include <utility>

#include "core/tensor/tensor.h"
#include "ops/algorithms/packing.h"
#include "ops/host/collectives.h"

namespace hvd {

namespace {

// Several of a window's chunks, so that their copies overlap; small, so that little of the first and last is exposed.
constexpr std::int64_t kPortionBytes = 512 << 10;

// One allreduce of the two-level backend on one host's ranks, portion by portion.
//
// The elements are divided into portions twice: for the reduction to the leader in the order in which the algorithm
// between the hosts uses the leader's values, and for the broadcast from the leader in the order in which it has
// results (allreduce.h). All ranks of the host know both orders and the size of a portion, and therefore process
// the same portions in the same order without communication: all of the reduction, then all of the broadcast. The
// leader continues when the network needs values or has results; the others follow.
//
// Both halves take one core's memory bandwidth for a short time, while the network takes long: only the reduction of
// the first portion and the broadcast of the last are not hidden behind it.
class TwoLevelPass {
 public:
  // The layout has a slice per host; `host` is the number of this one. The memory is the leader's: accumulators of the
  // host's values, and the results. References outlive the pass.
  TwoLevelPass(HostContext& context, const CollectiveCall& call, const SliceLayout& layout, int host,
               PackedMemory memory, InstructionSet instruction_set)
      : context_(context),
        call_(call),
        layout_(layout),
        memory_(memory),
        instruction_set_(instruction_set),
        portion_(kPortionBytes / static_cast<std::int64_t>(size_of(accumulator_of(call.dtype)))),
        reduction_order_(layout.slice_bounds(), host - 1 + layout.slices()),
        broadcast_order_(layout.slice_bounds(), host) {}

  // SlicedReduction's hook `ready`, of the leader: values of this part of a slice are needed.
  void make_ready(std::int64_t begin, std::int64_t end) { reduce_until(reduction_order_.up_to(begin, end)); }

  // SlicedReduction's hook `complete`, of the leader: results of this part are available. The first of them arrive
  // while values are still needed. They are held back then, because the other ranks perform all of the reduction first.
  void complete(std::int64_t begin, std::int64_t end) {
    if (reduced_ == reduction_order_.elements()) broadcast_until(broadcast_order_.up_to(begin, end));
  }

  // For the other ranks: performs all portions.
  void follow() {
    reduce_until(reduction_order_.elements());
    broadcast_until(broadcast_order_.elements());
  }

 private:
  void reduce_until(std::int64_t element) {
    const std::size_t size = size_of(call_.dtype), value_size = size_of(accumulator_of(call_.dtype));
    while (reduced_ < element) {
      const std::int64_t end = portion_end(reduced_);
      const auto pieces = pieces_in(reduction_order_, reduced_, end, [&](const Piece& piece, SliceLayout::Part part) {
        return Piece{.input = advance(piece.input, part.offset, size),
                     .output = advance(memory_.values, part.packed_offset, value_size),
                     .elements = part.count};
      });
      reduce_to_leader(
          context_, pieces,
          {.dtype = call_.dtype, .op = call_.op, .prescale = call_.prescale, .instruction_set = instruction_set_});
      reduced_ = end;
    }
  }

  void broadcast_until(std::int64_t element) {
    const std::size_t size = size_of(call_.dtype);
    while (broadcast_ < element && portion_end(broadcast_) <= element) {
      const std::int64_t end = portion_end(broadcast_);
      const auto pieces = pieces_in(broadcast_order_, broadcast_, end, [&](const Piece& piece, SliceLayout::Part part) {
        return Piece{.input = advance(memory_.results, part.packed_offset, size),
                     .output = advance(piece.output, part.offset, size),
                     .elements = part.count};
      });
      broadcast_from_leader(context_, pieces, call_.dtype);
      broadcast_ = end;
    }
  }

  // Returns make(piece, part) of each part of a piece in the elements [from, to) of a sequence.
  template <typename Make>
  std::vector<Piece> pieces_in(const SliceSequence& order, std::int64_t from, std::int64_t to, const Make& make) const {
    std::vector<Piece> pieces;
    order.for_each_part(from, to, [&](std::int64_t first, std::int64_t last) {
      layout_.for_each_run(first, last, [&](const SliceLayout::Run& run) {
        pieces.push_back(make(call_.pieces[run.piece], run.elements));
      });
    });
    return pieces;
  }

  // Portions end at multiples of their size, in both sequences.
  std::int64_t portion_end(std::int64_t from) const { return std::min(from + portion_, reduction_order_.elements()); }

  HostContext& context_;
  const CollectiveCall& call_;
  const SliceLayout& layout_;
  const PackedMemory memory_;
  const InstructionSet instruction_set_;
  const std::int64_t portion_;
  const SliceSequence reduction_order_, broadcast_order_;
  std::int64_t reduced_ = 0, broadcast_ = 0;  // elements of the sequences
};

// The allreduce.
//
//   1. The ranks of a host reduce their tensors into accumulators at the leader.
//   2. The leaders allreduce the accumulators; each slice is scaled and rounded, once, by the leader that completes it.
//   3. The leader broadcasts inside the host.
//
// The three overlap, portion by portion. A tensor is cut into slices by its own size (packing.h): its result does
// not depend on the bucket. Adasum is left to the backend that treats all ranks equally.
class TwoLevelBackend final : public Backend {
 public:
  TwoLevelBackend(std::shared_ptr<HostContext> context, std::shared_ptr<Transport> transport, const Topology& topology,
                  std::shared_ptr<VoteExchange> votes, Duration timeout, ChooseAllreduce choose_allreduce,
                  InstructionSet instruction_set)
      : context_(std::move(context)),
        transport_(std::move(transport)),
        votes_(std::move(votes)),
        timeout_(timeout),
        choose_allreduce_(std::move(choose_allreduce)),
        instruction_set_(instruction_set),
        ranks_(topology.size),
        host_(topology.host()),
        worthwhile_(topology.hosts.size() > 1 && topology.hosts.size() < static_cast<std::size_t>(topology.size)),
        leaders_(leaders_of(topology)) {}

  const char* name() const override { return "two-level"; }

  int score(const CollectiveCall& call) const override {
    const bool suits = worthwhile_ && call.collective == Collective::allreduce && call.device == kCpuDevice &&
                       call.set->size() == ranks_ && reduction_exists(call.dtype, call.op);
    return suits ? 50 : 0;
  }

  void run(const CollectiveCall& call) override {
    if (call.entry == EntryMode::asking) votes_->ask(*call.set, call.call_id);
    context_->window.waits().set_driving_thread(call.driving_thread);
    const SliceLayout layout = balanced_layout(call, static_cast<int>(leaders_.size()));
    if (context_->rank() == 0) {
      lead(call, layout);
    } else {
      TwoLevelPass(*context_, call, layout, host_, {}, instruction_set_).follow();
    }
    scratch_.release_large();
  }

  bool can_be_asked(const ProcessSet& set) const override { return set.size() == ranks_; }
  void decline(const ProcessSet& set, std::uint32_t call_id) override { votes_->decline(set, call_id); }
  void set_late_callback(Duration timeout, const std::function<bool()>& late) override {
    votes_->set_late_callback(timeout, late);
  }

 private:
  void lead(const CollectiveCall& call, const SliceLayout& layout) {
    const DType accumulator = accumulator_of(call.dtype);
    const PackedMemory memory = packed_memory(layout, accumulator, call.dtype, only_output(call), scratch_);
    TwoLevelPass pass(*context_, call, layout, host_, memory, instruction_set_);
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

  const std::shared_ptr<HostContext> context_;
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<VoteExchange> votes_;
  const Duration timeout_;
  const ChooseAllreduce choose_allreduce_;
  const InstructionSet instruction_set_;
  const int ranks_;
  const int host_;
  const bool worthwhile_;           // several hosts, at least one of them with several ranks
  const std::vector<int> leaders_;  // by host
  Scratch scratch_;                 // used by the leader
};

// The vote.
//
//   1. The ranks of a host exchange their votes.
//   2. The leaders disseminate whether any rank of their hosts declines.
//   3. The leader sends the result to its host.
class TwoLevelVoteExchange final : public VoteExchange {
 public:
  TwoLevelVoteExchange(std::shared_ptr<HostContext> context, std::shared_ptr<Transport> transport,
                       const Topology& topology, Duration timeout)
      : VoteExchange(timeout),
        context_(std::move(context)),
        transport_(std::move(transport)),
        host_(topology.host()),
        leaders_(leaders_of(topology)) {}

  void set_late_callback(Duration timeout, const std::function<bool()>& late) override {
    VoteExchange::set_late_callback(timeout, late);
    context_->window.waits().set_late_callback(timeout, [this] { return call_late_callback(); });
  }

 private:
  Vote exchange(Vote own, const Tag& tag) override {
    const std::vector<Vote> votes = exchange_inside_host(own, tag);
    Vote vote = *std::max_element(votes.begin(), votes.end());
    if (context_->rank() == 0) vote = disseminate(*transport_, leaders_, host_, vote, tag);
    return exchange_inside_host(vote, tag).front();
  }

  // Exchanges votes inside the host; returns them by local rank.
  std::vector<Vote> exchange_inside_host(Vote vote, const Tag& tag) {
    std::vector<Vote> votes;
    // These waits include other hosts, for which spinning for milliseconds does not pay.
    context_->window.enter(EntryMode::asking, static_cast<std::uint32_t>(tag.sequence), DrivingThread::engine);
    for (const std::byte received : exchange_host_votes(*context_, static_cast<std::byte>(vote))) {
      votes.push_back(received == std::byte{} ? Vote::ask : Vote::decline);
    }
    return votes;
  }

  const std::shared_ptr<HostContext> context_;
  const std::shared_ptr<Transport> transport_;
  const int host_;
  const std::vector<int> leaders_;  // by host
};

}  // namespace

std::vector<int> leaders_of(const Topology& topology) {
  std::vector<int> leaders;
  for (const auto& ranks : topology.hosts) leaders.push_back(ranks.front());
  return leaders;
}

std::unique_ptr<Backend> make_two_level_backend(std::shared_ptr<HostContext> context,
                                                std::shared_ptr<Transport> transport, const Topology& topology,
                                                std::shared_ptr<VoteExchange> votes, Duration timeout,
                                                ChooseAllreduce choose_allreduce, InstructionSet instruction_set) {
  return std::make_unique<TwoLevelBackend>(std::move(context), std::move(transport), topology, std::move(votes),
                                           timeout, std::move(choose_allreduce), instruction_set);
}

std::unique_ptr<VoteExchange> make_two_level_vote_exchange(std::shared_ptr<HostContext> context,
                                                           std::shared_ptr<Transport> transport,
                                                           const Topology& topology, Duration timeout) {
  return std::make_unique<TwoLevelVoteExchange>(std::move(context), std::move(transport), topology, timeout);
}

}  // namespace hvd

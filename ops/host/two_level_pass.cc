#include "ops/host/two_level_pass.h"

#include <algorithm>

namespace hvd {

namespace {

// Several of a window's chunks, so that their copies overlap; small, so that little of the first and last is exposed.
constexpr std::int64_t kPortionBytes = 512 << 10;

}  // namespace

TwoLevelPass::TwoLevelPass(HostCommunicator& group, const CollectiveCall& call, const SliceLayout& layout, int host,
                           PackedMemory memory, InstructionSet instruction_set)
    : group_(group),
      call_(call),
      layout_(layout),
      memory_(memory),
      instruction_set_(instruction_set),
      portion_(kPortionBytes / static_cast<std::int64_t>(size_of(accumulator_of(call.dtype)))),
      reduction_order_(layout.slice_bounds(), host - 1 + layout.slices()),
      broadcast_order_(layout.slice_bounds(), host) {}

std::int64_t TwoLevelPass::portion_end(std::int64_t from) const {
  return std::min(from + portion_, reduction_order_.elements());
}

void TwoLevelPass::reduce_until(std::int64_t element) {
  const std::size_t size = size_of(call_.dtype), value_size = size_of(accumulator_of(call_.dtype));
  while (reduced_ < element) {
    const std::int64_t end = portion_end(reduced_);
    std::vector<Piece> pieces;
    reduction_order_.for_each_part(reduced_, end, [&](std::int64_t first, std::int64_t last) {
      layout_.for_each_run(first, last, [&](const SliceLayout::Run& run) {
        const Piece& piece = call_.pieces[run.piece];
        pieces.push_back({.input = advance(piece.input, run.elements.offset, size),
                          .output = advance(memory_.values, run.elements.packed_offset, value_size),
                          .elements = run.elements.count});
      });
    });
    group_.reduce_to_leader(
        pieces,
        {.dtype = call_.dtype, .op = call_.op, .prescale = call_.prescale, .instruction_set = instruction_set_});
    reduced_ = end;
  }
}

void TwoLevelPass::broadcast_until(std::int64_t element) {
  const std::size_t size = size_of(call_.dtype);
  while (broadcast_ < element && portion_end(broadcast_) <= element) {
    const std::int64_t end = portion_end(broadcast_);
    std::vector<Piece> pieces;
    broadcast_order_.for_each_part(broadcast_, end, [&](std::int64_t first, std::int64_t last) {
      layout_.for_each_run(first, last, [&](const SliceLayout::Run& run) {
        const Piece& piece = call_.pieces[run.piece];
        pieces.push_back({.input = advance(memory_.results, run.elements.packed_offset, size),
                          .output = advance(piece.output, run.elements.offset, size),
                          .elements = run.elements.count});
      });
    });
    group_.broadcast_from_leader(pieces, call_.dtype);
    broadcast_ = end;
  }
}

void TwoLevelPass::make_ready(std::int64_t begin, std::int64_t end) {
  reduce_until(reduction_order_.up_to(begin, end));
}

// The first results arrive while values are still needed: they are held back, because the others know only one order.
void TwoLevelPass::complete(std::int64_t begin, std::int64_t end) {
  if (reduced_ == reduction_order_.elements()) broadcast_until(broadcast_order_.up_to(begin, end));
}

void TwoLevelPass::follow() {
  reduce_until(reduction_order_.elements());
  broadcast_until(broadcast_order_.elements());
}

}  // namespace hvd

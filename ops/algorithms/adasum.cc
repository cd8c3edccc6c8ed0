// Allreduce with Adasum, over any connection between the ranks: sums that shrink where the ranks' vectors point in the
// same direction (ops/reduction/reduce.h).
//
// The sum of N vectors is a tree over the ranks: (0, 1), (2, 3), ... are added in pairs, then the sums of neighbouring
// pairs, until one is left; a vector without a partner moves up unchanged. Each tensor of a bucket has its own sum.
//
//   1. Every tensor is cut into N slices by its own size (packing.h), and each rank gets its slice of all ranks'
//      tensors, which it widens to accumulators and prescales.
//   2. For each level of the tree the ranks compute the dot products of all pairs over their slices, send them to each
//      other, and add them up in rank order; with the sums each adds its slices of all pairs.
//   3. Each rank scales and rounds its slice of the result, once, and sends it to all others.
//
// Slices are sent by direct exchange. Bytes sent per rank: 2(N-1)/N of the tensors in their own type, as for an
// allreduce by direct exchange; and for each level with P pairs, 24 (N-1) P bytes for each tensor, in one small
// exchange. Levels: ceil(log2 N). Memory: the tensors' size in accumulators for a rank's slices of all vectors; once or
// twice their own size during the exchange, for 16-bit floats and for several tensors or a joined rank.
//
// The order of all additions depends only on the tensor's own size and the number of ranks: the same bits on every
// rank, in every run, on every backend, fused or alone.
//
// Source: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021, whose tree this is;
// there a rank exchanges halves of vectors with one partner per level, which needs a power of two of ranks.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/packing.h"
#include "ops/reduction/reduce.h"

namespace hvd {

namespace {

using Bounds = std::vector<std::int64_t>;

static_assert(std::is_trivially_copyable_v<DotProducts>, "dot products travel as they are");

// The beginnings of blocks of `block_bytes`, and the end of the last one.
Bounds equal_bounds(std::size_t blocks, std::size_t block_bytes) {
  Bounds bounds;
  for (std::size_t i = 0; i <= blocks; ++i) bounds.push_back(static_cast<std::int64_t>(i * block_bytes));
  return bounds;
}

Bounds byte_bounds(const SliceLayout& layout, DType dtype) {
  Bounds bounds;
  for (const std::int64_t elements : layout.slice_bounds()) {
    bounds.push_back(static_cast<std::int64_t>(bytes_of(elements, dtype)));
  }
  return bounds;
}

// A single tensor is already in the order of slices; null if there are several, or the input is missing.
const std::byte* only_input(const CollectiveCall& call) {
  return call.pieces.size() == 1 ? static_cast<const std::byte*>(call.pieces.front().input) : nullptr;
}

// Packs all tensors slice by slice in their own type, unscaled; zeros for those of a joined rank, as for a sum.
void pack_inputs(const CollectiveCall& call, const SliceLayout& layout, std::byte* packed,
                 InstructionSet instruction_set) {
  CollectiveCall sum = call;
  sum.op = ReduceOp::sum;
  sum.prescale = 1.0;
  pack(sum, layout, 0, layout.total_elements(), call.dtype, packed, instruction_set);
}

// The vectors that one rank adds: its slice of every rank's tensors, as accumulators, in rank order.
class LocalSlices {
 public:
  LocalSlices(const CollectiveCall& call, const SliceLayout& layout, int position, InstructionSet instruction_set)
      : call_(call),
        layout_(layout),
        position_(position),
        instruction_set_(instruction_set),
        type_(accumulator_of(call.dtype)),
        first_(layout.slice_bounds()[static_cast<std::size_t>(position)]),
        elements_(layout.slice_bounds()[static_cast<std::size_t>(position) + 1] - first_) {}

  // The size of the slices, followed by the received data if that is of another type.
  std::size_t bytes() const {
    return bytes_of(total(), type_) + (type_ == call_.dtype ? 0 : bytes_of(total(), call_.dtype));
  }

  // Receives all ranks' slices from their packed tensors.
  void receive(const std::byte* packed, const Bounds& bounds, SliceExchange& exchange, std::byte* memory) {
    slices_ = memory;
    std::byte* received = type_ == call_.dtype ? memory : memory + bytes_of(total(), type_);
    exchange.scatter(packed, bounds, received);
    const void* const input[] = {received};
    reduce({.dtype = call_.dtype, .prescale = call_.prescale, .instruction_set = instruction_set_}, call_.dtype, input,
           type_, slices_, static_cast<std::size_t>(total()));
  }

  // Adds the pairs of one level of the tree, whose partners are `distance` ranks apart; the sum replaces the first.
  void add_pairs(int distance, SliceExchange& exchange) {
    std::vector<DotProducts> own;
    for_each_pair(distance, [&](std::byte* a, const std::byte* b, std::size_t elements) {
      own.push_back(dot_products(type_, a, b, elements));
    });

    const auto ranks = static_cast<std::size_t>(call_.set->size());
    std::vector<DotProducts> all(ranks * own.size());
    std::copy(own.begin(), own.end(), all.begin() + position_ * static_cast<std::ptrdiff_t>(own.size()));
    exchange.gather(reinterpret_cast<std::byte*>(all.data()), equal_bounds(ranks, own.size() * sizeof(DotProducts)));

    std::size_t next = 0;
    for_each_pair(distance, [&](std::byte* a, const std::byte* b, std::size_t elements) {
      DotProducts sum;
      for (std::size_t rank = 0; rank < ranks; ++rank) sum += all[rank * own.size() + next];
      add_adaptively(type_, sum, a, b, elements);
      ++next;
    });
  }

  // Writes the result to its place among the results, once only one vector is left.
  void finish(std::byte* results) const {
    const void* const input[] = {slices_};
    reduce({.dtype = call_.dtype, .postscale = call_.postscale, .instruction_set = instruction_set_}, type_, input,
           call_.dtype, results + bytes_of(first_, call_.dtype), static_cast<std::size_t>(elements_));
  }

 private:
  std::int64_t total() const { return elements_ * call_.set->size(); }

  template <typename Each>
  void for_each_pair(int distance, Each each) const {
    for (int rank = 0; rank + distance < call_.set->size(); rank += 2 * distance) {
      for (std::size_t i = 0; i < call_.pieces.size(); ++i) {
        const SliceLayout::Part& part = layout_.part(position_, i);
        const std::int64_t in_slice = part.packed_offset - first_;
        each(slices_ + bytes_of(rank * elements_ + in_slice, type_),
             slices_ + bytes_of((rank + distance) * elements_ + in_slice, type_), static_cast<std::size_t>(part.count));
      }
    }
  }

  const CollectiveCall& call_;
  const SliceLayout& layout_;
  const int position_;
  const InstructionSet instruction_set_;
  const DType type_;
  const std::int64_t first_;     // of this rank's slice in a packed buffer
  const std::int64_t elements_;  // in this rank's slice
  std::byte* slices_ = nullptr;
};

}  // namespace

bool is_adasum(const CollectiveCall& call) {
  return call.collective == Collective::allreduce && call.op == ReduceOp::adasum && is_floating(call.dtype);
}

void adasum(const CollectiveCall& call, int position, SliceExchange& exchange, Scratch& scratch,
            InstructionSet instruction_set) {
  const SliceLayout layout = balanced_layout(call, call.set->size());
  const Bounds bounds = byte_bounds(layout, call.dtype);
  LocalSlices slices(call, layout, position, instruction_set);
  const std::byte* const input = only_input(call);
  std::byte* const output = only_output(call);
  const bool is_packed = input == nullptr || output == nullptr;
  std::byte* memory = scratch.take(slices.bytes() + (is_packed ? bytes_of(layout.total_elements(), call.dtype) : 0));
  std::byte* packed = memory + slices.bytes();

  if (input == nullptr) pack_inputs(call, layout, packed, instruction_set);
  slices.receive(input == nullptr ? packed : input, bounds, exchange, memory);
  for (int distance = 1; distance < call.set->size(); distance *= 2) slices.add_pairs(distance, exchange);
  std::byte* results = output == nullptr ? packed : output;
  slices.finish(results);
  exchange.gather(results, bounds);
  if (output == nullptr) {
    unpack(call, layout, 0, layout.total_elements(), UnpackTo::place_in_piece, packed);
  }
}

}  // namespace hvd

#include "ops/algorithms/adasum.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ops/algorithms/slice_layout.h"
#include "ops/reduction/adaptive_sum.h"
#include "ops/reduction/reduce.h"

namespace hvd {

namespace {

using Bounds = std::vector<std::int64_t>;

static_assert(std::is_trivially_copyable_v<DotProducts>, "dot products travel as they are");

std::size_t bytes_of(std::int64_t elements, DType dtype) { return static_cast<std::size_t>(elements) * size_of(dtype); }

// Where blocks of so many bytes begin, and where the last one ends.
Bounds equal_bounds(std::size_t blocks, std::size_t block_bytes) {
  Bounds bounds;
  for (std::size_t i = 0; i <= blocks; ++i) bounds.push_back(static_cast<std::int64_t>(i * block_bytes));
  return bounds;
}

SliceLayout layout_of(const CollectiveCall& call) {
  std::vector<std::int64_t> elements;
  for (const Piece& piece : call.pieces) elements.push_back(piece.elements);
  return SliceLayout::balanced(elements, call.set->size());
}

// Between the tensors and a buffer that holds them slice by slice, both in their own type.
class Packing {
 public:
  Packing(const CollectiveCall& call, const SliceLayout& layout) : call_(call), layout_(layout) {}

  std::size_t bytes() const { return bytes_of(layout_.total_elements(), call_.dtype); }

  Bounds bounds() const {
    Bounds bounds;
    for (const std::int64_t elements : layout_.slice_bounds()) {
      bounds.push_back(static_cast<std::int64_t>(bytes_of(elements, call_.dtype)));
    }
    return bounds;
  }

  // A tensor that is alone lies slice by slice as it is: null if there are several, or this one is not there.
  const std::byte* only_input() const {
    return call_.pieces.size() == 1 ? static_cast<const std::byte*>(call_.pieces.front().input) : nullptr;
  }
  std::byte* only_output() const {
    return call_.pieces.size() == 1 ? static_cast<std::byte*>(call_.pieces.front().output) : nullptr;
  }

  // The inputs, zeros for a joined rank's.
  void pack(std::byte* packed) const {
    for_each_part([&](const Piece& piece, std::size_t in_piece, std::size_t in_packed, std::size_t size) {
      if (piece.input == nullptr) {
        std::memset(packed + in_packed, 0, size);
      } else {
        std::memcpy(packed + in_packed, static_cast<const std::byte*>(piece.input) + in_piece, size);
      }
    });
  }

  void unpack(const std::byte* packed) const {
    for_each_part([&](const Piece& piece, std::size_t in_piece, std::size_t in_packed, std::size_t size) {
      if (piece.output == nullptr) return;
      std::memcpy(static_cast<std::byte*>(piece.output) + in_piece, packed + in_packed, size);
    });
  }

 private:
  template <typename Each>
  void for_each_part(Each each) const {
    for (int slice = 0; slice < layout_.slices(); ++slice) {
      for (std::size_t i = 0; i < call_.pieces.size(); ++i) {
        const SliceLayout::Part& part = layout_.part(slice, i);
        if (part.count == 0) continue;
        each(call_.pieces[i], bytes_of(part.offset, call_.dtype), bytes_of(part.packed_offset, call_.dtype),
             bytes_of(part.count, call_.dtype));
      }
    }
  }

  const CollectiveCall& call_;
  const SliceLayout& layout_;
};

// What one rank adds up: its slice of every rank's tensors, as accumulators, in rank order.
class OwnSlices {
 public:
  OwnSlices(const CollectiveCall& call, const SliceLayout& layout, int position)
      : call_(call),
        layout_(layout),
        position_(position),
        type_(accumulator_of(call.dtype)),
        first_(layout.slice_bounds()[static_cast<std::size_t>(position)]),
        elements_(layout.slice_bounds()[static_cast<std::size_t>(position) + 1] - first_) {}

  // Of the slices, and behind them of what is received, if that is another type.
  std::size_t bytes() const {
    return bytes_of(total(), type_) + (type_ == call_.dtype ? 0 : bytes_of(total(), call_.dtype));
  }

  // All ranks' slices, out of what each has packed.
  void receive(const std::byte* packed, const Bounds& bounds, SliceExchange& exchange, std::byte* memory) {
    slices_ = memory;
    std::byte* received = type_ == call_.dtype ? memory : memory + bytes_of(total(), type_);
    exchange.scatter(packed, bounds, received);
    const void* const input[] = {received};
    reduce({.dtype = call_.dtype, .prescale = call_.prescale}, call_.dtype, input, type_, slices_,
           static_cast<std::size_t>(total()));
  }

  // One level of the tree, on which partners are `distance` ranks apart: the sum is where the first one was.
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

  // The result, when only one vector is left, to its place among the results.
  void finish(std::byte* results) const {
    const void* const input[] = {slices_};
    reduce({.dtype = call_.dtype, .postscale = call_.postscale}, type_, input, call_.dtype,
           results + bytes_of(first_, call_.dtype), static_cast<std::size_t>(elements_));
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
  const DType type_;
  const std::int64_t first_;     // of the own slice in a packed buffer
  const std::int64_t elements_;  // in the own slice
  std::byte* slices_ = nullptr;
};

}  // namespace

bool is_adasum(const CollectiveCall& call) {
  return call.collective == Collective::allreduce && call.op == ReduceOp::adasum && is_floating(call.dtype);
}

void adasum(const CollectiveCall& call, int position, SliceExchange& exchange, Scratch& scratch) {
  const SliceLayout layout = layout_of(call);
  const Packing packing(call, layout);
  const Bounds bounds = packing.bounds();
  OwnSlices slices(call, layout, position);
  const bool packs = packing.only_input() == nullptr, unpacks = packing.only_output() == nullptr;
  std::byte* memory = scratch.take(slices.bytes() + (packs || unpacks ? packing.bytes() : 0));
  std::byte* packed = memory + slices.bytes();

  if (packs) packing.pack(packed);
  slices.receive(packs ? packed : packing.only_input(), bounds, exchange, memory);
  for (int distance = 1; distance < call.set->size(); distance *= 2) slices.add_pairs(distance, exchange);
  std::byte* results = unpacks ? packed : packing.only_output();
  slices.finish(results);
  exchange.gather(results, bounds);
  if (unpacks) packing.unpack(packed);
}

}  // namespace hvd

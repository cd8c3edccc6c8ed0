// Defines how the tensors of a bucket are cut into slices and packed for an algorithm that works slice by slice
// (SliceLayout, pure).
//
// Each piece is cut by its own size, and slice h of the packed buffer is the concatenation over the pieces of their
// slices h:
//
//   pieces  A = a0 a1 a2 a3 a4   B = b0 b1        two slices
//   packed  | a0 a1 a2 b0 | a3 a4 b1 |
//
// So the slice of an element, and with it the order of its sum, depends only on its own tensor and never on the rest of
// the bucket: the same tensor has the same result fused or alone.
//
// Also copies between tensors and packed buffers, where it scales, converts to the accumulator type and replaces the
// tensors of joined ranks; and chooses the memory of packed buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/operation/collective_call.h"
#include "ops/reduction/reduce.h"

namespace hvd {

class SliceLayout {
 public:
  struct Part {
    std::int64_t offset = 0;         // in the piece
    std::int64_t count = 0;          // elements
    std::int64_t packed_offset = 0;  // in the packed buffer
  };

  // Consecutive elements of one part.
  struct Run {
    int slice = 0;
    std::size_t piece = 0;
    Part elements;
  };

  // Cuts every piece into slices of equal size; the first ones have one element more if it is not divisible.
  static SliceLayout balanced(std::span<const std::int64_t> elements, int slices) {
    SliceLayout layout(elements.size(), slices);
    auto part = layout.parts_.begin();
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      for (const std::int64_t count : elements) {
        const std::int64_t share = count / slices;
        const std::int64_t longer = count % slices;
        *part++ = {.offset = slice * share + std::min(slice, longer), .count = share + (slice < longer ? 1 : 0)};
      }
    }
    layout.pack();
    return layout;
  }

  // counts[piece][slice]: given sizes, for instance what each rank receives.
  static SliceLayout with_counts(std::span<const std::vector<std::int64_t>> counts, int slices) {
    SliceLayout layout(counts.size(), slices);
    for (std::size_t piece = 0; piece < counts.size(); ++piece) {
      std::int64_t offset = 0;
      for (std::size_t slice = 0; slice < static_cast<std::size_t>(slices); ++slice) {
        layout.parts_[slice * counts.size() + piece] = {.offset = offset, .count = counts[piece][slice]};
        offset += counts[piece][slice];
      }
    }
    layout.pack();
    return layout;
  }

  int slices() const { return slices_; }
  std::size_t pieces() const { return pieces_; }
  const Part& part(int slice, std::size_t piece) const {
    return parts_[static_cast<std::size_t>(slice) * pieces_ + piece];
  }

  // Calls body(Run) for the elements [begin, end) of the packed buffer, part by part.
  template <typename Body>
  void for_each_run(std::int64_t begin, std::int64_t end, const Body& body) const {
    for (std::size_t at = begin < end ? part_at(begin) : 0; begin < end; ++at) {
      const Part& part = parts_[at];
      const std::int64_t skipped = begin - part.packed_offset;
      const std::int64_t count = std::min(end, part.packed_offset + part.count) - begin;
      if (count <= 0) continue;
      body(Run{.slice = static_cast<int>(at / pieces_),
               .piece = at % pieces_,
               .elements = {.offset = part.offset + skipped, .count = count, .packed_offset = begin}});
      begin += count;
    }
  }

  // slices() + 1 offsets in the packed buffer: slice h is [bounds[h], bounds[h + 1]).
  std::span<const std::int64_t> slice_bounds() const { return bounds_; }
  std::int64_t total_elements() const { return bounds_.back(); }

 private:
  SliceLayout(std::size_t pieces, int slices)
      : pieces_(pieces), slices_(slices), parts_(pieces * static_cast<std::size_t>(slices)) {}

  // Sets the parts' offsets in the packed buffer from their counts.
  void pack() {
    std::int64_t packed = 0;
    auto part = parts_.begin();
    for (int slice = 0; slice < slices_; ++slice) {
      bounds_.push_back(packed);
      for (std::size_t piece = 0; piece < pieces_; ++piece, ++part) {
        part->packed_offset = packed;
        packed += part->count;
      }
    }
    bounds_.push_back(packed);
  }

  // The last part that begins at or before this element.
  std::size_t part_at(std::int64_t packed_offset) const {
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), packed_offset,
                         [](std::int64_t offset, const Part& part) { return offset < part.packed_offset; });
    return static_cast<std::size_t>(after - parts_.begin()) - 1;
  }

  std::size_t pieces_;
  int slices_;
  std::vector<Part> parts_;  // slice-major
  std::vector<std::int64_t> bounds_;
};

// The elements of a packed buffer in another order: slice `first`, then first-1, first-2, ...,
// cyclically, each of them forwards. The order in which an algorithm uses values and has results (allreduce.h).
// Pure.
class SliceSequence {
 public:
  // Bounds as returned by SliceLayout.
  SliceSequence(std::span<const std::int64_t> slice_bounds, int first) : starts_{0} {
    const std::size_t slices = slice_bounds.size() - 1;
    for (std::size_t back = 0; back < slices; ++back) {
      const std::size_t slice = (static_cast<std::size_t>(first) + slices - back) % slices;
      slices_.push_back({slice_bounds[slice], slice_bounds[slice + 1]});
      starts_.push_back(starts_.back() + slice_bounds[slice + 1] - slice_bounds[slice]);
    }
  }

  std::int64_t elements() const { return starts_.back(); }

  // The number of elements of the sequence up to the end of [begin, end), which is a part of one slice.
  std::int64_t up_to(std::int64_t begin, std::int64_t end) const {
    std::size_t i = 0;
    while (begin < slices_[i].begin || begin >= slices_[i].end) ++i;
    return starts_[i] + end - slices_[i].begin;
  }

  // Calls body(begin, end) with the parts of the packed buffer that are elements [from, to) of the sequence.
  template <typename Body>
  void for_each_part(std::int64_t from, std::int64_t to, const Body& body) const {
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::int64_t first = std::max(from, starts_[i]), last = std::min(to, starts_[i + 1]);
      if (first < last) body(slices_[i].begin + first - starts_[i], slices_[i].begin + last - starts_[i]);
    }
  }

 private:
  struct Slice {
    std::int64_t begin, end;  // in the packed buffer
  };

  std::vector<Slice> slices_;         // in the order of the sequence
  std::vector<std::int64_t> starts_;  // in the sequence; one more than slices
};

// Memory that a backend keeps between calls, for one use at a time: to allocate new pages would cost more time than the
// work in them.
class Scratch {
 public:
  // Returns at least `bytes`, aligned for any type, with undefined content; invalidates earlier results.
  std::byte* take(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }

  // Called after a call: frees a buffer above the limit, which was needed for one huge tensor.
  void release_large() {
    if (bytes_ <= kKeptBytes) return;
    memory_.reset();
    bytes_ = 0;
  }

 private:
  static constexpr std::size_t kKeptBytes = std::size_t{128} << 20;

  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

// The packed values and results of a reduction. Results may be in `tensor`, the memory of the call's only output (null:
// none), since one tensor is its own packed buffer; values are in the same memory if of the same type. The rest is
// scratch.
struct PackedMemory {
  std::byte* values = nullptr;
  std::byte* results = nullptr;
};
PackedMemory packed_memory(const SliceLayout& layout, DType value_type, DType result_type, std::byte* tensor,
                           Scratch& scratch);
// Returns the call's only output, or null.
std::byte* only_output(const CollectiveCall& call);

// The layout of an allreduce's tensors.
SliceLayout balanced_layout(const CollectiveCall& call, int slices);

// Fills the elements [begin, end) of `packed`, which is of `value_type`: the accumulator type, with prescale * input;
// or the tensors' own type if that is different, with the unchanged input. If the input is null (a joined rank) it
// writes the operation's identity, chosen such that a later prescale preserves it. `packed` may be the only piece's
// memory.
void pack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, DType value_type,
          std::byte* packed, InstructionSet instruction_set);

// Copies the results [begin, end) to output[piece][at + i], where `at` is the part's offset in the piece for an
// allreduce, and 0 if this rank receives only this slice. Pieces without output are skipped.
enum class UnpackTo { place_in_piece, start_of_output };
void unpack(const CollectiveCall& call, const SliceLayout& layout, std::int64_t begin, std::int64_t end, UnpackTo place,
            const std::byte* packed);

}  // namespace hvd

// How the algorithms of a host move elements: the tensors of a collective as one sequence, which is packed into this
// rank's slot of the window chunk by chunk, reduced in slices, and unpacked into the outputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/operation/collective_call.h"
#include "ops/host/host_context.h"
#include "ops/reduction/reduce.h"

namespace hvd {

inline std::int64_t elements_of(std::span<const Piece> pieces) {
  std::int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.elements;
  return total;
}

// Advances a pointer by `elements`; null stays null.
inline void* advance(void* base, std::int64_t elements, std::size_t size) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + static_cast<std::size_t>(elements) * size;
}
inline const void* advance(const void* base, std::int64_t elements, std::size_t size) {
  return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + static_cast<std::size_t>(elements) * size;
}

// Iterates over the elements of a list of pieces as one sequence, run by run; replaces a fusion buffer.
class PieceCursor {
 public:
  // Elements [first, first + count) of one piece.
  struct Run {
    const Piece* piece;
    std::int64_t first;
    std::int64_t count;

    // Null if the piece has no input.
    const std::byte* input(std::size_t element_size) const {
      return piece->input == nullptr ? nullptr : static_cast<const std::byte*>(piece->input) + offset(element_size);
    }
    std::byte* output(std::size_t element_size) const {
      return piece->output == nullptr ? nullptr : static_cast<std::byte*>(piece->output) + offset(element_size);
    }

   private:
    std::size_t offset(std::size_t element_size) const { return static_cast<std::size_t>(first) * element_size; }
  };

  explicit PieceCursor(std::span<const Piece> pieces) : next_(pieces.data()) {}

  // Returns the next elements of one piece, at most `limit`. At least `limit` elements must be left.
  Run next(std::int64_t limit) {
    while (next_->elements == first_) {
      ++next_;
      first_ = 0;
    }
    const Run run{next_, first_, std::min(limit, next_->elements - first_)};
    first_ += run.count;
    return run;
  }

 private:
  const Piece* next_;
  std::int64_t first_ = 0;
};

// The number of elements in the whole cache lines that fit into `bytes`.
inline std::int64_t elements_in(std::size_t bytes, std::size_t element_size) {
  return static_cast<std::int64_t>(bytes / 64 * 64 / element_size);
}

// The bounds of slice `slice` of `count` elements: whole cache lines except at the end.
struct SliceBounds {
  std::int64_t begin, end;
};
SliceBounds slice_bounds(std::int64_t count, int slice, int slices, std::size_t element_size);

// Calls visit(piece, first, end) for each piece that has elements in the slice.
template <typename Visit>
void for_pieces(std::span<const Piece> pieces, const SliceBounds& slice, const Visit& visit) {
  std::int64_t begin = 0;  // of the piece
  for (std::size_t p = 0; p < pieces.size(); begin += pieces[p++].elements) {
    const std::int64_t first = std::max(slice.begin - begin, std::int64_t{0});
    const std::int64_t end = std::min(slice.end - begin, pieces[p].elements);
    if (first < end) visit(p, first, end);
  }
}

// In its scope, outputs of `bytes` in total bypass the caches if they are too large for them.
class OutputScope {
 public:
  OutputScope(HostContext& context, std::int64_t bytes);
  ~OutputScope();
  OutputScope(const OutputScope&) = delete;
  OutputScope& operator=(const OutputScope&) = delete;

 private:
  HostContext& context_;
};

// Copies the next `count` elements into this rank's slot at `destination`; joined ranks write the identity.
void pack(HostContext& context, PieceCursor& cursor, std::int64_t count, const Reduction& reduction,
          std::byte* destination);
// Copies the next `count` elements from `source` to the outputs that are wanted.
void unpack(const HostContext& context, PieceCursor& cursor, std::int64_t count, std::size_t element_size,
            const std::byte* source);
void write_output(const HostContext& context, std::byte* output, const std::byte* source, std::size_t bytes);
// Copies inputs to their places in this rank's outputs.
void keep_own(std::span<const Piece> pieces, std::size_t element_size);

// The elements of a collective that are still to be published, chunk by chunk.
struct Publication {
  PieceCursor cursor;
  std::int64_t left;
  std::int64_t chunk;
};
// Publishes the next chunk, if there is one.
void publish_next(HostContext& context, Publication& publication, const Reduction& reduction);

// Set the context's sources: to the ranks' published slots of the current step, from this offset on; to their notes.
void find_published(HostContext& context, std::size_t offset);
void find_notes(HostContext& context);

// Reduces the sources, one per rank and of the tensors' type, into `out`, in rank order.
inline void fold(const HostContext& context, const Reduction& reduction, DType out_type, void* out,
                 std::size_t elements) {
  reduce(reduction, reduction.dtype, context.sources, out_type, out, elements);
}
// Reduces the next `count` elements from the sources directly into the outputs, and advances the sources.
void reduce_from_sources(HostContext& context, PieceCursor& cursor, std::int64_t count, const Reduction& reduction);

}  // namespace hvd

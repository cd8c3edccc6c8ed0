// Iterates over the elements of a list of pieces as one sequence, run by run; replaces a fusion buffer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/operation/collective_call.h"

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

}  // namespace hvd

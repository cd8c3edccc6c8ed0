// Allocates ranges of a piece of memory: first fit, by offsets, without accessing the memory. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace hvd {

class FreeRanges {
 public:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };

  explicit FreeRanges(std::size_t bytes) { free_.emplace(0, bytes); }

  // Allocates `bytes` (at least one) and returns their offset; nothing if no free range is long enough.
  std::optional<std::size_t> take(std::size_t bytes, std::size_t alignment);
  // The size of the allocation at `offset`; nothing if there is no such allocation.
  std::optional<std::size_t> taken_at(std::size_t offset) const;
  // Frees the allocation at `offset`; returns the free range that contains it now.
  Range give_back(std::size_t offset);

  bool all_free() const { return used_.empty(); }

 private:
  std::map<std::size_t, std::size_t> free_;  // offset to size, never adjacent
  std::map<std::size_t, std::size_t> used_;
};

}  // namespace hvd

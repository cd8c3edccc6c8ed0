// Which ranges of a piece of memory are free: first fit, by offsets, without a look at the memory. Pure.
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

  // Where `bytes` (more than none) are in use from now on; nothing if no free range is long enough.
  std::optional<std::size_t> take(std::size_t bytes, std::size_t alignment);
  // How many bytes take() gave out there; nothing if it did not.
  std::optional<std::size_t> taken_at(std::size_t offset) const;
  // Takes back what take() gave out at `offset`; returns the free range that it is part of now.
  Range give_back(std::size_t offset);

  bool all_free() const { return used_.empty(); }

 private:
  std::map<std::size_t, std::size_t> free_;  // offset to size, never adjacent
  std::map<std::size_t, std::size_t> used_;
};

}  // namespace hvd

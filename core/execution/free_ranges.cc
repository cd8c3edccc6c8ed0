#include "core/execution/free_ranges.h"

#include <iterator>

namespace hvd {

std::optional<std::size_t> FreeRanges::take(std::size_t bytes, std::size_t alignment) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const std::size_t begin = range->first, end = begin + range->second;
    const std::size_t offset = (begin + alignment - 1) / alignment * alignment;
    if (offset > end || bytes > end - offset) continue;
    free_.erase(range);
    if (offset > begin) free_.emplace(begin, offset - begin);
    if (end > offset + bytes) free_.emplace(offset + bytes, end - offset - bytes);
    used_.emplace(offset, bytes);
    return offset;
  }
  return std::nullopt;
}

std::optional<std::size_t> FreeRanges::taken_at(std::size_t offset) const {
  const auto found = used_.find(offset);
  if (found == used_.end()) return std::nullopt;
  return found->second;
}

FreeRanges::Range FreeRanges::give_back(std::size_t offset) {
  const auto found = used_.find(offset);
  Range range{offset, offset + found->second};
  used_.erase(found);
  auto next = free_.lower_bound(range.begin);
  if (next != free_.end() && next->first == range.end) {
    range.end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == range.begin) {
    range.begin = std::prev(next)->first;
    free_.erase(std::prev(next));
  }
  free_.emplace(range.begin, range.end - range.begin);
  return range;
}

}  // namespace hvd

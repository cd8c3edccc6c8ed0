#include "parameters/row_cache.h"

#include <algorithm>

namespace hvd {

bool RowCache::find(std::uint64_t key, std::uint32_t clock, float* to) {
  const RowTable::Row* const row = rows_.find(key);
  if (row == nullptr || clock - row->used > clocks_) {
    ++missing_;
    return false;
  }
  ++found_;
  std::copy_n(row->values(), width_, to);
  return true;
}

void RowCache::keep(std::uint64_t key, std::uint32_t clock, const float* row) {
  if (!pushes_.empty() && pushes_.contains(key)) return;
  RowTable::Row* kept = rows_.find(key);
  if (kept == nullptr) kept = &rows_.insert(key);
  kept->used = clock;
  std::copy_n(row, width_, kept->values());
}

void RowCache::begin_push(std::uint64_t key) {
  ++pushes_[key];
  rows_.remove(key);
}

void RowCache::end_push(std::uint64_t key) {
  const auto found = pushes_.find(key);
  if (found != pushes_.end() && --found->second == 0) pushes_.erase(found);
}

void RowCache::advance(std::uint32_t clock) {
  if (clock - swept_ < clocks_) return;
  swept_ = clock;
  for (std::size_t number = 0; number < rows_.end(); ++number) {
    const RowTable::Row* const row = rows_.at(number);
    if (row != nullptr && clock - row->used > clocks_) rows_.remove(row->key);
  }
}

void RowCache::forget() {
  for (std::size_t number = 0; number < rows_.end(); ++number) {
    if (const RowTable::Row* const row = rows_.at(number)) rows_.remove(row->key);
  }
}

}  // namespace hvd

#include "parameters/row_table.h"

#include <algorithm>
#include <new>

#include "parameters/table_spec.h"

namespace hvd {

namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kFirstIndex = 64;
constexpr int kSampled = 8;  // rows, of which the least recently used one goes

constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace

void RowTable::Free::operator()(std::byte* slab) const { ::operator delete(slab, std::align_val_t{kCacheLine}); }

RowTable::RowTable(std::size_t floats)
    : row_bytes_(whole_lines(sizeof(Row) + floats * sizeof(float))),
      rows_per_slab_(std::max<std::size_t>(1, kSlabBytes / row_bytes_)),
      index_(kFirstIndex, kNone) {}

std::size_t RowTable::bytes() const {
  return slabs_.size() * rows_per_slab_ * row_bytes_ + (index_.size() + vacant_.size()) * sizeof(std::uint32_t);
}

std::size_t RowTable::bytes_of_more(std::size_t rows) const {
  const std::size_t room = vacant_.size() + slabs_.size() * rows_per_slab_ - end_;
  const std::size_t slabs = rows <= room ? 0 : (rows - room + rows_per_slab_ - 1) / rows_per_slab_;
  std::size_t index = index_.size();
  while (2 * (count_ + rows) > index) index *= 2;
  return slabs * rows_per_slab_ * row_bytes_ + (index - index_.size()) * sizeof(std::uint32_t);
}

std::size_t RowTable::home(std::uint64_t key) const { return mix64(key) & (index_.size() - 1); }

void RowTable::prefetch(std::uint64_t key) const { __builtin_prefetch(&index_[home(key)]); }

RowTable::Row& RowTable::row(std::uint32_t number) const {
  std::byte* const slab = slabs_[number / rows_per_slab_].get();
  return *reinterpret_cast<Row*>(slab + number % rows_per_slab_ * row_bytes_);
}

RowTable::Row* RowTable::at(std::size_t number) const {
  if (number >= end_ || (!is_vacant_.empty() && is_vacant_[number])) return nullptr;
  return &row(static_cast<std::uint32_t>(number));
}

std::size_t RowTable::slot_of(std::uint64_t key) const {
  std::size_t slot = home(key);
  while (index_[slot] != kNone && row(index_[slot]).key != key) slot = (slot + 1) & (index_.size() - 1);
  return slot;
}

RowTable::Row* RowTable::find(std::uint64_t key) const {
  const std::uint32_t number = index_[slot_of(key)];
  return number == kNone ? nullptr : &row(number);
}

RowTable::Row& RowTable::insert(std::uint64_t key) {
  if (2 * (count_ + 1) > index_.size()) grow_index();
  std::uint32_t number = 0;
  if (!vacant_.empty()) {
    number = vacant_.back();
    vacant_.pop_back();
    is_vacant_[number] = false;
  } else {
    if (end_ == slabs_.size() * rows_per_slab_) {
      slabs_.emplace_back(
          static_cast<std::byte*>(::operator new(rows_per_slab_* row_bytes_, std::align_val_t{kCacheLine})));
    }
    number = static_cast<std::uint32_t>(end_++);
    if (!is_vacant_.empty()) is_vacant_.push_back(false);
  }
  index_[slot_of(key)] = number;
  ++count_;
  return *new (&row(number)) Row{.key = key, .used = 0, .touch = 0};
}

// Rows behind the gap move up if that brings them nearer to their home, so that no search ends too early.
void RowTable::remove(std::uint64_t key) {
  const std::size_t mask = index_.size() - 1;
  std::size_t gap = slot_of(key);
  const std::uint32_t number = index_[gap];
  if (number == kNone) return;
  for (std::size_t next = (gap + 1) & mask; index_[next] != kNone; next = (next + 1) & mask) {
    const std::size_t from_home = (next - home(row(index_[next]).key)) & mask;
    if (from_home < ((next - gap) & mask)) continue;
    index_[gap] = index_[next];
    gap = next;
  }
  index_[gap] = kNone;
  if (is_vacant_.empty()) is_vacant_.resize(end_, false);
  is_vacant_[number] = true;
  vacant_.push_back(number);
  --count_;
}

void RowTable::grow_index() {
  index_.assign(index_.size() * 2, kNone);
  for (std::size_t number = 0; number < end_; ++number) {
    if (const Row* const one = at(number)) index_[slot_of(one->key)] = static_cast<std::uint32_t>(number);
  }
}

void RowEviction::evict(std::uint64_t key, std::vector<EvictedRows>* kept) {
  rows_.remove(key);
  ++count_;
  if (kept == nullptr) return;
  if (kept->empty() || kept->back().table != table_) kept->push_back({.table = table_});
  kept->back().keys.push_back(key);
}

void RowEviction::evict_one(std::uint32_t now, std::uint64_t seed, std::vector<EvictedRows>* kept) {
  const RowTable::Row* oldest = nullptr;
  std::uint64_t dice = seed * 31 + count_;
  const auto try_row = [&](std::uint64_t number) {
    const RowTable::Row* const row = rows_.at(number % rows_.end());
    if (row == nullptr || row->touch == touch_) return;
    if (oldest == nullptr || now - row->used > now - oldest->used) oldest = row;
  };
  for (int i = 0; i < kSampled; ++i) try_row(dice = mix64(dice));
  for (dice %= rows_.end(); oldest == nullptr; ++dice) try_row(dice);  // the push touches nearly all
  evict(oldest->key, kept);
}

void RowEviction::evict_aged(std::uint32_t now, std::uint32_t clocks, std::uint32_t max_age,
                             std::vector<EvictedRows>* kept) {
  const std::uint64_t end = rows_.end(), age = max_age;
  for (std::uint64_t left = (end * std::min<std::uint64_t>(clocks, age) + age - 1) / age; left > 0; --left) {
    if (swept_ >= end) swept_ = 0;
    const RowTable::Row* const row = rows_.at(swept_++);
    if (row == nullptr || std::min(now - row->used, now - aged_since_) <= max_age) continue;
    evict(row->key, kept);
  }
}

}  // namespace hvd

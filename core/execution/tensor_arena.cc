#include "core/execution/tensor_arena.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::size_t kSmallAlignment = 128;
// Less than this is kept for the next allocation: freeing and committing again costs more than zeroing a page.
constexpr std::size_t kGiveBackBytes = 64 << 10;
// Smaller mappings are not worth making.
constexpr std::size_t kMinMapped = 16 << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Maps what will eventually be needed, or if the address space does not suffice, what is needed now.
template <typename Map>
auto map_amply(std::size_t wanted, std::size_t needed, const Map& map) {
  if (wanted <= needed) return map(needed);
  try {
    return map(wanted);
  } catch (const Error&) {
    return map(needed);
  }
}

[[noreturn]] void throw_not_ours() { throw InvalidArgument("the freed memory was not allocated from the arena"); }

}  // namespace

FreeRanges::FreeRanges(std::size_t bytes) { free_.emplace(0, bytes); }

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

bool FreeRanges::all_free() const { return used_.empty(); }

std::size_t ArenaLayout::begin_of(int rank) const { return first + static_cast<std::size_t>(rank) * part_bytes; }

std::size_t ArenaLayout::end() const { return begin_of(ranks); }

TensorArena::TensorArena(std::shared_ptr<const SharedMemory> memory, const ArenaLayout& layout, int local_rank)
    : memory_(std::move(memory)),
      layout_(layout),
      rank_(local_rank),
      process_(getpid()),
      page_bytes_(whole_pages(1)),
      others_(static_cast<std::size_t>(layout.ranks)) {
  usage_.limit = layout_.part_bytes;
}

void* TensorArena::allocate(std::size_t bytes) {
  const MutexLock lock(mutex_);
  if (bytes > layout_.part_bytes) throw_full(bytes, "more than the limit");
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kSmallAlignment);
  void* memory = allocate_mapped(bytes, size);
  if (memory == nullptr) {
    map_section(bytes, size);
    memory = allocate_mapped(bytes, size);
  }
  usage_.used += size;
  usage_.peak = std::max(usage_.peak, usage_.used);
  return memory;
}

void* TensorArena::allocate_mapped(std::size_t bytes, std::size_t size) {
  for (Section& section : sections_) {
    const auto offset = section.ranges.take(size, bytes < page_bytes_ ? kSmallAlignment : page_bytes_);
    if (!offset) continue;
    try {
      memory_->take(layout_.begin_of(rank_) + section.begin + *offset, size);
    } catch (const Error& error) {
      section.ranges.give_back(*offset);
      throw_full(bytes, error.what());
    }
    return section.mapped.data() + *offset;
  }
  return nullptr;
}

void TensorArena::map_section(std::size_t bytes, std::size_t size) {
  while (!sections_.empty() && sections_.back().ranges.all_free()) sections_.pop_back();
  const std::size_t begin = sections_.empty() ? 0 : sections_.back().end(), room = layout_.part_bytes - begin;
  const std::size_t needed = whole_pages(size), wanted = std::min(room, std::max(begin, kMinMapped));
  if (needed > room) throw_full(bytes, "no free range is long enough");
  try {
    MappedRange mapped = map_amply(wanted, needed, [&](std::size_t length) {
      return memory_->map_range(layout_.begin_of(rank_) + begin, length);
    });
    const std::size_t length = mapped.size();
    sections_.push_back({begin, std::move(mapped), FreeRanges(length)});
  } catch (const Error& error) {
    throw_full(bytes, error.what());
  }
}

void TensorArena::free(void* memory) {
  if (getpid() != process_) return;
  const MutexLock lock(mutex_);
  const std::size_t index = section_of(memory);
  if (index == sections_.size()) throw_not_ours();
  Section& section = sections_[index];
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(memory) - section.mapped.data());
  const auto taken = section.ranges.taken_at(offset);
  if (!taken) throw_not_ours();
  usage_.used -= *taken;
  const FreeRanges::Range range = section.ranges.give_back(offset);
  const std::size_t first = round_up(range.begin, page_bytes_), last = range.end / page_bytes_ * page_bytes_;
  if (last >= first + kGiveBackBytes) {
    memory_->give_back(layout_.begin_of(rank_) + section.begin + first, last - first);
  }
}

TensorArena::Usage TensorArena::usage() const {
  const MutexLock lock(mutex_);
  return usage_;
}

// A forked child has one thread, and the mutex may be held by a thread that does not exist there.
bool TensorArena::contains(const void* memory) const {
  if (getpid() != process_) return section_of(memory) < sections_.size();
  const MutexLock lock(mutex_);
  return section_of(memory) < sections_.size();
}

std::optional<std::uint64_t> TensorArena::offset_of(const void* memory, std::size_t bytes) const {
  const MutexLock lock(mutex_);
  const std::size_t index = section_of(memory);
  if (index == sections_.size()) return std::nullopt;
  const Section& section = sections_[index];
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - section.mapped.data());
  if (bytes > section.mapped.size() - offset) return std::nullopt;
  return section.begin + offset;
}

std::size_t TensorArena::Section::end() const { return begin + mapped.size(); }

// The number of sections if it is in none.
std::size_t TensorArena::section_of(const void* memory) const {
  std::size_t index = 0;
  while (index < sections_.size() && !sections_[index].mapped.contains(memory)) ++index;
  return index;
}

void TensorArena::map_peer(int local_rank, std::uint64_t offset, std::size_t bytes) {
  if (offset > layout_.part_bytes || bytes > layout_.part_bytes - offset) {
    throw Internal("local rank " + std::to_string(local_rank) + " names memory outside its part of the arena");
  }
  MappedRange& part = others_[static_cast<std::size_t>(local_rank)];
  const std::size_t needed = whole_pages(offset + bytes);
  if (needed <= part.size()) return;
  const std::size_t wanted = std::min(layout_.part_bytes, std::max(2 * part.size(), kMinMapped));
  try {
    map_amply(wanted, needed, [&](std::size_t length) {
      if (part.size() > 0) return part.grow(length);
      part = memory_->map_range(layout_.begin_of(local_rank), length);
    });
  } catch (const Error& error) {
    throw Internal("cannot map the tensors that local rank " + std::to_string(local_rank) +
                   " has in the shared arena (" + error.what() + "); HVD_ARENA_LIMIT=0 does without the arena");
  }
}

std::byte* TensorArena::at(int local_rank, std::uint64_t offset) const {
  return others_[static_cast<std::size_t>(local_rank)].data() + offset;
}

void TensorArena::throw_full(std::size_t bytes, const std::string& why) const {
  throw InvalidArgument("cannot take " + std::to_string(bytes) + " bytes from the shared arena (" + why +
                        "): " + std::to_string(usage_.used) + " of " + std::to_string(usage_.limit) +
                        " bytes are in use; HVD_ARENA_LIMIT sets the limit");
}

}  // namespace hvd

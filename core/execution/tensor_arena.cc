#include "core/execution/tensor_arena.h"

#include <unistd.h>

#include <algorithm>
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

void TensorArena::throw_full(std::size_t bytes, const std::string& why) const {
  throw InvalidArgument("cannot take " + std::to_string(bytes) + " bytes from the shared arena (" + why +
                        "): " + std::to_string(usage_.used) + " of " + std::to_string(usage_.limit) +
                        " bytes are in use; HVD_ARENA_LIMIT sets the limit");
}

}  // namespace hvd

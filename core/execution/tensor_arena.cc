#include "core/execution/tensor_arena.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmallAlignment = 128;
// Less than this is kept for the next allocation: giving back and taking again costs more than a page's zeroing.
constexpr std::size_t kGiveBackBytes = 64 << 10;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

TensorArena::TensorArena(std::shared_ptr<const SharedMemory> memory, std::size_t first, std::size_t part_bytes,
                         int local_rank)
    : memory_(std::move(memory)),
      parts_begin_(first),
      part_begin_(first + static_cast<std::size_t>(local_rank) * part_bytes),
      part_bytes_(part_bytes),
      process_(getpid()) {
  free_.emplace(0, part_bytes_);
  usage_.limit = part_bytes_;
}

void* TensorArena::allocate(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const std::size_t alignment = bytes < kPage ? kSmallAlignment : kPage;
  if (bytes > part_bytes_) throw_full(bytes, "that is more than the bound");
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kSmallAlignment);
  for (const auto& range : free_) {
    const std::size_t begin = range.first, end = begin + range.second;  // copied, because the range is erased below
    const std::size_t offset = round_up(begin, alignment);
    if (offset + size > end) continue;
    try {
      memory_->take(part_begin_ + offset, size);
    } catch (const Error& error) {
      throw_full(bytes, error.what());
    }
    free_.erase(begin);
    if (offset > begin) free_.emplace(begin, offset - begin);
    if (end > offset + size) free_.emplace(offset + size, end - offset - size);
    used_.emplace(offset, size);
    usage_.used += size;
    usage_.peak = std::max(usage_.peak, usage_.used);
    return part() + offset;
  }
  throw_full(bytes, "no free range is long enough");
}

void TensorArena::free(void* memory) {
  if (getpid() != process_) return;
  std::lock_guard lock(mutex_);
  const auto found = used_.find(static_cast<std::size_t>(static_cast<std::byte*>(memory) - part()));
  if (found == used_.end()) throw InvalidArgument("memory is given back that the arena has not handed out");
  std::size_t begin = found->first, end = begin + found->second;
  usage_.used -= found->second;
  used_.erase(found);

  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == begin) {
    begin = std::prev(next)->first;
    free_.erase(std::prev(next));
  }
  free_.emplace(begin, end - begin);

  const std::size_t first = round_up(begin, kPage), last = end / kPage * kPage;
  if (last >= first + kGiveBackBytes) memory_->give_back(part_begin_ + first, last - first);
}

TensorArena::Usage TensorArena::usage() const {
  std::lock_guard lock(mutex_);
  return usage_;
}

bool TensorArena::contains(const void* memory) const {
  const auto* byte = static_cast<const std::byte*>(memory);
  return byte >= memory_->data() + parts_begin_ && byte < memory_->data() + memory_->size();
}

std::optional<std::uint64_t> TensorArena::offset_of(const void* memory, std::size_t bytes) const {
  const auto* byte = static_cast<const std::byte*>(memory);
  if (byte < part() || byte >= part() + part_bytes_) return std::nullopt;
  const auto offset = static_cast<std::size_t>(byte - part());
  if (bytes > part_bytes_ - offset) return std::nullopt;
  return offset;
}

std::byte* TensorArena::at(int local_rank, std::uint64_t offset, std::size_t bytes) const {
  if (offset > part_bytes_ || bytes > part_bytes_ - offset) {
    throw Internal("local rank " + std::to_string(local_rank) + " names memory outside its part of the arena");
  }
  return memory_->data() + parts_begin_ + static_cast<std::size_t>(local_rank) * part_bytes_ + offset;
}

void TensorArena::throw_full(std::size_t bytes, const std::string& why) const {
  throw InvalidArgument("cannot take " + std::to_string(bytes) + " bytes from the shared arena (" + why +
                        "): " + std::to_string(usage_.used) + " of " + std::to_string(usage_.limit) +
                        " bytes are in use; HVD_ARENA_LIMIT sets the bound");
}

}  // namespace hvd

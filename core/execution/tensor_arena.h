// Allocates tensor memory that all ranks of a host can access: a backend reduces such tensors in place, without copying
// them first.
//
// One file with a part for each rank of the host. A rank allocates from its part without notifying the others, which
// find memory by rank and offset. Nothing is reserved at start, neither memory nor address space. A rank maps its part
// section by section, each as large as all before together, since allocations must not move; and of another rank's part
// the beginning, as far as tensors there have been announced. Memory is committed when it is allocated, so that
// exhaustion is an error then and not a fatal signal at the first access, and returns to the system when it is freed.
//
// allocate(), free(), usage(), contains() and offset_of(): any thread. map_peer() and at(): one thread at a time. A
// forked child, which shares the memory with its parent, frees nothing.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/net/shared_memory.h"

namespace hvd {

// Allocates ranges of a piece of memory: first fit, by offsets, without accessing the memory. Pure.
class FreeRanges {
 public:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };

  explicit FreeRanges(std::size_t bytes);

  // Allocates `bytes` (at least one) and returns their offset; nothing if no free range is long enough.
  std::optional<std::size_t> take(std::size_t bytes, std::size_t alignment);
  // The size of the allocation at `offset`; nothing if there is no such allocation.
  std::optional<std::size_t> taken_at(std::size_t offset) const;
  // Frees the allocation at `offset`; returns the free range that contains it now.
  Range give_back(std::size_t offset);

  bool all_free() const;

 private:
  std::map<std::size_t, std::size_t> free_;  // offset to size, never adjacent
  std::map<std::size_t, std::size_t> used_;
};

// Starts at offset `first`, with `part_bytes` (a rank's limit) for each of `ranks`. In whole pages.
struct ArenaLayout {
  std::size_t first;
  std::size_t part_bytes;
  int ranks;

  std::size_t begin_of(int rank) const;
  std::size_t end() const;
};

class TensorArena {
 public:
  struct Usage {
    std::size_t limit = 0;  // bytes
    std::size_t used = 0;
    std::size_t peak = 0;
  };

  // `memory`, shared by all ranks of the host, is as long as the layout says; it need not be mapped.
  TensorArena(std::shared_ptr<const SharedMemory> memory, const ArenaLayout& layout, int local_rank);

  // 128-byte aligned (page aligned from one page upwards); uninitialised. Throws Error (out of memory or address space,
  // or beyond the limit), which says how much is in use.
  void* allocate(std::size_t bytes);
  // Frees what allocate() returned; throws InvalidArgument for anything else.
  void free(void* memory);
  Usage usage() const;
  // Whether the memory is in this rank's part.
  bool contains(const void* memory) const NO_THREAD_SAFETY_ANALYSIS;

  // The offset of [memory, memory + bytes) in this rank's part; nothing if it is elsewhere.
  std::optional<std::uint64_t> offset_of(const void* memory, std::size_t bytes) const;
  // Maps another rank's part up to the end of [offset, offset + bytes). Invalidates what at() has returned for that
  // rank. Throws Internal (outside that rank's part, or no address space).
  void map_peer(int local_rank, std::uint64_t offset, std::size_t bytes);
  // The memory at `offset` of that rank's part, after map_peer().
  std::byte* at(int local_rank, std::uint64_t offset) const;

 private:
  struct Section {
    std::size_t begin;  // in the part
    MappedRange mapped;
    FreeRanges ranges;

    std::size_t end() const;
  };

  std::size_t section_of(const void* memory) const REQUIRES(mutex_);
  void* allocate_mapped(std::size_t bytes, std::size_t size) REQUIRES(mutex_);
  void map_section(std::size_t bytes, std::size_t size) REQUIRES(mutex_);
  [[noreturn]] void throw_full(std::size_t bytes, const std::string& why) const REQUIRES(mutex_);

  const std::shared_ptr<const SharedMemory> memory_;
  const ArenaLayout layout_;
  const int rank_;
  const pid_t process_;
  const std::size_t page_bytes_;
  std::vector<MappedRange> others_;  // by rank: the beginning of its part
  mutable Mutex mutex_;
  std::vector<Section> sections_ GUARDED_BY(mutex_);  // of this rank's part, in order
  Usage usage_ GUARDED_BY(mutex_);
};

}  // namespace hvd

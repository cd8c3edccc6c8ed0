// Memory for tensors that all ranks of a host reach: a backend reduces what lies here where it lies, without copying it
// anywhere first.
//
// One file, cut into a part for each rank of the host. A rank takes memory from its own part and tells nobody; the
// others find it by the rank and the offset in its part. Nothing is set aside at start, neither memory nor address
// space. A rank maps its part section by section, each as large as all before together, since what it has handed out
// must stay where it is; and of another's part the beginning, as far as it has been told of tensors there. Memory is
// taken when it is allocated, so that there is an error then and not a fatal signal at the first touch, and goes back
// to the system when it is freed.
//
// allocate(), free(), usage(), contains() and offset_of(): any thread. reach() and at(): one thread at a time. In a
// forked child, which shares the memory with its parent, nothing is given back.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/execution/free_ranges.h"
#include "core/net/mapped_range.h"
#include "core/net/shared_memory.h"

namespace hvd {

// From `first` on, `part_bytes` (the bound on what a rank may take) for each of `ranks`. In whole pages.
struct ArenaLayout {
  std::size_t first;
  std::size_t part_bytes;
  int ranks;

  std::size_t begin_of(int rank) const { return first + static_cast<std::size_t>(rank) * part_bytes; }
  std::size_t end() const { return begin_of(ranks); }
};

class TensorArena {
 public:
  struct Usage {
    std::size_t limit = 0;  // bytes
    std::size_t used = 0;
    std::size_t peak = 0;
  };

  // `memory`, which all ranks of the host have, is as long as the layout says; it need not be mapped.
  TensorArena(std::shared_ptr<const SharedMemory> memory, const ArenaLayout& layout, int local_rank);

  // 128-byte aligned (to pages from one page upwards); content undefined. Throws Error (out of memory or of address
  // space, or beyond the bound), which says how much is in use.
  void* allocate(std::size_t bytes);
  // Takes what allocate() returned; throws InvalidArgument for anything else.
  void free(void* memory);
  Usage usage() const;
  // In this rank's part.
  bool contains(const void* memory) const;

  // Where [memory, memory + bytes) lies in this rank's part; nothing if it lies elsewhere.
  std::optional<std::uint64_t> offset_of(const void* memory, std::size_t bytes) const;
  // Maps as much of another rank's part as it takes to have [offset, offset + bytes) of it. What at() has returned for
  // that rank is void then. Throws Internal (not in that rank's part, or no address space).
  void reach(int local_rank, std::uint64_t offset, std::size_t bytes);
  // What lies there, once it has been reached.
  std::byte* at(int local_rank, std::uint64_t offset) const {
    return others_[static_cast<std::size_t>(local_rank)].data() + offset;
  }

 private:
  struct Section {
    std::size_t begin;  // in the part
    MappedRange mapped;
    FreeRanges ranges;

    std::size_t end() const { return begin + mapped.size(); }
  };

  std::size_t section_of(const void* memory) const;
  void* allocate_mapped(std::size_t bytes, std::size_t size);
  void map_section(std::size_t bytes, std::size_t size);
  [[noreturn]] void throw_full(std::size_t bytes, const std::string& why) const;

  const std::shared_ptr<const SharedMemory> memory_;
  const ArenaLayout layout_;
  const int rank_;
  const pid_t process_;
  std::vector<MappedRange> others_;  // by rank: the beginning of its part
  mutable std::mutex mutex_;
  std::vector<Section> sections_;  // of the own part, in its order; guarded by mutex_, as all below
  Usage usage_;
};

}  // namespace hvd

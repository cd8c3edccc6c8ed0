// Memory for tensors that all ranks of a host have mapped: a backend reduces what lies here where it lies, without
// copying it anywhere first.
//
// One mapping, cut into a part for each rank of the host. A rank takes memory from its own part and tells nobody; the
// others find it by the rank and the offset in its part, wherever the mapping lies in their address space. Only address
// space is set aside at start. Memory is taken when it is allocated, so that there is an error then and not a fatal
// signal at the first touch, and goes back to the system when it is freed.
//
// allocate(), free() and usage(): any thread. In a forked child, which shares the memory with its parent, nothing is
// given back.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/net/shared_memory.h"

namespace hvd {

class TensorArena {
 public:
  struct Usage {
    std::size_t limit = 0;  // bytes
    std::size_t used = 0;
    std::size_t peak = 0;
  };

  // `memory` is mapped by all ranks of the host. From `first` (whole pages) on it holds part_bytes (whole pages; the
  // bound on what a rank may take) for each of them.
  TensorArena(std::shared_ptr<const SharedMemory> memory, std::size_t first, std::size_t part_bytes, int local_rank);

  // 128-byte aligned (to pages from one page upwards); content undefined. Throws Error (out of memory, or beyond the
  // bound), which says how much is in use.
  void* allocate(std::size_t bytes);
  // Takes what allocate() returned; throws InvalidArgument for anything else.
  void free(void* memory);
  Usage usage() const;
  // In any rank's part.
  bool contains(const void* memory) const;

  // Where [memory, memory + bytes) lies in this rank's part; nothing if it lies elsewhere.
  std::optional<std::uint64_t> offset_of(const void* memory, std::size_t bytes) const;
  // The same for a rank of this host, here. Throws Internal if it is not in that rank's part.
  std::byte* at(int local_rank, std::uint64_t offset, std::size_t bytes) const;

 private:
  std::byte* part() const { return memory_->data() + part_begin_; }
  [[noreturn]] void throw_full(std::size_t bytes, const std::string& why) const;

  const std::shared_ptr<const SharedMemory> memory_;
  const std::size_t parts_begin_;  // in the memory: of all parts,
  const std::size_t part_begin_;   // and of this rank's
  const std::size_t part_bytes_;
  const pid_t process_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset to size, never adjacent; guarded by mutex_, as all below
  std::map<std::size_t, std::size_t> used_;
  Usage usage_;
};

}  // namespace hvd

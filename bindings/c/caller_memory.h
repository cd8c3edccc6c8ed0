// Memory that the runtime has given to callers of the C interface, until they free it: in a tensor arena, on a device,
// or ordinary memory. Arenas outlive their runtime while memory in them is in use.
//
// Any thread may call. A forked child has neither devices nor arenas: there only ordinary memory is freed.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "core/base/mutex.h"
#include "core/execution/tensor_arena.h"

namespace hvd {

class CallerMemory {
 public:
  // Allocates in this arena, or ordinary memory if it is null. Throws Error.
  void* allocate(const std::shared_ptr<TensorArena>& arena, std::size_t bytes);
  // Owns device memory until it is freed.
  void keep(std::shared_ptr<void> on_device);
  // Frees memory of any of these kinds. Arenas without memory in use are dropped, except for the `current` one.
  void free(void* memory, const std::shared_ptr<TensorArena>& current);
  void drop_unused_arenas(const std::shared_ptr<TensorArena>& current);

  // For a forked child. Takes no lock: the child has one thread, and another may have held the lock at the fork.
  void free_in_child(void* memory) NO_THREAD_SAFETY_ANALYSIS;

 private:
  std::shared_ptr<TensorArena> arena_of(const void* memory) const REQUIRES(mutex_);

  mutable Mutex mutex_;  // held only briefly
  // The current arena, once memory was allocated in it, and earlier ones with memory in use.
  std::vector<std::shared_ptr<TensorArena>> arenas_ GUARDED_BY(mutex_);
  std::map<void*, std::shared_ptr<void>> on_devices_ GUARDED_BY(mutex_);  // by address
};

}  // namespace hvd

#include "bindings/c/caller_memory.h"

#include <algorithm>
#include <utility>

#include "core/tensor/tensor.h"

namespace hvd {

void* CallerMemory::allocate(const std::shared_ptr<TensorArena>& arena, std::size_t bytes) {
  if (!arena) return allocate_tensor_memory(bytes);
  void* memory = arena->allocate(bytes);
  const MutexLock lock(mutex_);
  if (std::find(arenas_.begin(), arenas_.end(), arena) == arenas_.end()) arenas_.push_back(arena);
  return memory;
}

void CallerMemory::keep(std::shared_ptr<void> on_device) {
  const MutexLock lock(mutex_);
  void* const address = on_device.get();
  on_devices_[address] = std::move(on_device);
}

void CallerMemory::free(void* memory, const std::shared_ptr<TensorArena>& current) {
  MutexLock lock(mutex_);
  const std::shared_ptr<TensorArena> arena = arena_of(memory);
  const auto on_device = on_devices_.extract(memory);
  lock.unlock();  // the driver may wait for the device
  if (arena) {
    arena->free(memory);
    drop_unused_arenas(current);
  } else if (on_device.empty()) {
    FreeMemory()(memory);
  }
}

void CallerMemory::free_in_child(void* memory) {
  if (!arena_of(memory) && !on_devices_.contains(memory)) FreeMemory()(memory);
}

void CallerMemory::drop_unused_arenas(const std::shared_ptr<TensorArena>& current) {
  const MutexLock lock(mutex_);
  std::erase_if(arenas_, [&current](const auto& arena) { return arena != current && arena->usage().used == 0; });
}

std::shared_ptr<TensorArena> CallerMemory::arena_of(const void* memory) const {
  const auto found =
      std::find_if(arenas_.begin(), arenas_.end(), [memory](const auto& arena) { return arena->contains(memory); });
  return found == arenas_.end() ? nullptr : *found;
}

}  // namespace hvd

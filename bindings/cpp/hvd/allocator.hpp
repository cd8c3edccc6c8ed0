// An allocator for the containers of tensors: memory of the arena that a host's ranks share (hvd_alloc in hvd.h), where
// they reduce it without copying it first. Included by hvd.hpp.
#pragma once

#include <cstddef>
#include <new>

#include "hvd.h"
#include "hvd/error.hpp"

namespace hvd {
inline namespace v1 {

// std::vector<float, hvd::allocator<float>>. Needs an initialised runtime when it allocates, none when it gives back.
template <typename T>
struct allocator {
  using value_type = T;

  allocator() = default;
  template <typename U>
  allocator(const allocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    void* memory = nullptr;
    detail::check(hvd_alloc(count * sizeof(T), &memory));
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) noexcept { hvd_free(memory); }

  // Any instance frees what another has allocated.
  bool operator==(const allocator&) const = default;
};

}  // namespace v1
}  // namespace hvd

// A standard allocator for the containers of tensors: allocates in the arena that the ranks of a host share (hvd_alloc
// in hvd.h), where they are reduced without a copy. Included by hvd.hpp.
#pragma once

#include <cstddef>
#include <new>

#include "hvd.h"
#include "hvd/error.hpp"

namespace hvd {
inline namespace v1 {

// Used as std::vector<float, hvd::allocator<float>>. allocate() needs an initialised runtime; deallocate() does not.
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

  // Memory may be freed through any instance.
  bool operator==(const allocator&) const = default;
};

}  // namespace v1
}  // namespace hvd

// A range of a file mapped into this process's address space, shared with other processes; unmapped on destruction.
#pragma once

#include <cstddef>

namespace hvd {

// `bytes` rounded up to whole pages, the unit of all ranges.
std::size_t whole_pages(std::size_t bytes);

class MappedRange {
 public:
  MappedRange() = default;  // maps nothing
  // Maps from `begin` on; both in whole pages. Throws Internal, which says what limits the address space.
  MappedRange(int fd, std::size_t begin, std::size_t bytes);

  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;
  ~MappedRange();

  // Extends the range, perhaps at another address. Throws as the constructor does, and is unchanged then.
  void grow(std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool contains(const void* memory) const {
    const auto* byte = static_cast<const std::byte*>(memory);
    return byte >= data_ && byte < data_ + size_;
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hvd

// A range of a file in this process's address space, shared with whoever maps the same; unmapped at the end.
#pragma once

#include <cstddef>

namespace hvd {

// `bytes` rounded up to whole pages, of which every range consists.
std::size_t whole_pages(std::size_t bytes);

class MappedRange {
 public:
  MappedRange() = default;  // maps nothing
  // From `begin` on; both are whole pages. Throws Internal, which says what bounds the address space.
  MappedRange(int fd, std::size_t begin, std::size_t bytes);

  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;
  ~MappedRange();

  // The same range with more bytes, perhaps at another address. Throws as the constructor, and is then as it was.
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

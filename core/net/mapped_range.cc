#include "core/net/mapped_range.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/error_text.h"

namespace hvd {

namespace {

std::byte* address_or_throw(void* address, std::size_t bytes) {
  if (address != MAP_FAILED) return static_cast<std::byte*>(address);
  const int error = errno;
  std::string text = "shared memory of " + std::to_string(bytes) + " bytes: mmap: " + error_text(error);
  rlimit limit{};
  if (error == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text += " (`ulimit -v` leaves this process " + std::to_string(limit.rlim_cur) + " bytes of address space)";
  }
  throw Internal(text);
}

}  // namespace

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

MappedRange::MappedRange(int fd, std::size_t begin, std::size_t bytes)
    : data_(address_or_throw(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(begin)),
                             bytes)),
      size_(bytes) {}

MappedRange::MappedRange(MappedRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedRange& MappedRange::operator=(MappedRange&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedRange::~MappedRange() {
  if (data_ != nullptr) munmap(data_, size_);
}

void MappedRange::grow(std::size_t bytes) {
  data_ = address_or_throw(mremap(data_, size_, bytes, MREMAP_MAYMOVE), bytes);
  size_ = bytes;
}

}  // namespace hvd

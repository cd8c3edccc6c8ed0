#include "core/net/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

Internal failure(std::size_t bytes, const std::string& operation) {
  return Internal("shared memory of " + std::to_string(bytes) + " bytes: " + operation + ": " + error_text(errno));
}

std::byte* address_or_throw(void* address, std::size_t bytes) {
  if (address != MAP_FAILED) return static_cast<std::byte*>(address);
  throw failure(bytes, "mmap");
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// At least one: an empty range cannot be mapped.
std::size_t pages_for(std::size_t bytes) { return whole_pages(std::max<std::size_t>(bytes, 1)); }

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

std::byte* MappedRange::data() const { return data_; }

std::size_t MappedRange::size() const { return size_; }

bool MappedRange::contains(const void* memory) const {
  const auto* byte = static_cast<const std::byte*>(memory);
  return byte >= data_ && byte < data_ + size_;
}

SharedMemory SharedMemory::create(std::size_t bytes, const std::string& label, std::size_t mapped) {
  bytes = pages_for(bytes);
  FileDescriptor fd(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw failure(bytes, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) throw failure(bytes, "ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw failure(bytes, "sealing");
  return SharedMemory(std::move(fd), std::min(mapped, bytes));
}

SharedMemory SharedMemory::map(FileDescriptor fd, std::size_t bytes, std::size_t mapped) {
  bytes = pages_for(bytes);
  // Without the seal its maker could truncate the file later, and every access to the lost part would be fatal.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw Internal("received memory that is not sealed against shrinking");
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) throw failure(bytes, "fstat");
  if (static_cast<std::size_t>(status.st_size) != bytes) {
    throw Internal("received shared memory of " + std::to_string(status.st_size) + " bytes, expected " +
                   std::to_string(bytes));
  }
  return SharedMemory(std::move(fd), std::min(mapped, bytes));
}

SharedMemory::SharedMemory(FileDescriptor fd, std::size_t mapped)
    : fd_(std::move(fd)), mapped_(map_range(0, pages_for(mapped))) {}

MappedRange SharedMemory::map_range(std::size_t begin, std::size_t bytes) const { return {fd_.get(), begin, bytes}; }

void SharedMemory::take(std::size_t begin, std::size_t bytes) const {
  int failed = 0;
  do {
    failed = fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) throw failure(bytes, "fallocate");
}

// If it fails the memory stays committed as long as the mapping, which does no other harm.
void SharedMemory::give_back(std::size_t begin, std::size_t bytes) const noexcept {
  static_cast<void>(fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                              static_cast<off_t>(bytes)));
}

std::byte* SharedMemory::data() const { return mapped_.data(); }

std::size_t SharedMemory::size() const { return mapped_.size(); }

int SharedMemory::fd() const { return fd_.get(); }

}  // namespace hvd

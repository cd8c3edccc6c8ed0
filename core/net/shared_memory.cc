#include "core/net/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/error.h"
#include "core/net/endpoint.h"

namespace hvd {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::max(page, (bytes + page - 1) / page * page);
}

Internal failure(std::size_t bytes, const std::string& operation) {
  return Internal("shared memory of " + std::to_string(bytes) + " bytes: " + operation + ": " + error_text(errno));
}

std::byte* map_all(int fd, std::size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw failure(bytes, "mmap");
  return static_cast<std::byte*>(address);
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes, const std::string& label) {
  bytes = whole_pages(bytes);
  FileDescriptor fd(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw failure(bytes, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) throw failure(bytes, "ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw failure(bytes, "sealing");
  std::byte* address = map_all(fd.get(), bytes);
  return SharedMemory(std::move(fd), address, bytes);
}

SharedMemory SharedMemory::map(FileDescriptor fd, std::size_t bytes) {
  bytes = whole_pages(bytes);
  // Without the seal its maker could cut the file short later, and every touch of the lost part would be fatal.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw Internal("received memory that is not sealed against shrinking");
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) throw failure(bytes, "fstat");
  if (static_cast<std::size_t>(status.st_size) != bytes) {
    throw Internal("received shared memory of " + std::to_string(status.st_size) + " bytes, expected " +
                   std::to_string(bytes));
  }
  std::byte* address = map_all(fd.get(), bytes);
  return SharedMemory(std::move(fd), address, bytes);
}

void SharedMemory::take(std::size_t begin, std::size_t bytes) const {
  int failed = 0;
  do {
    failed = fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) throw failure(bytes, "fallocate");
}

// Where it fails the memory stays taken as long as the mapping, which is no harm but that.
void SharedMemory::give_back(std::size_t begin, std::size_t bytes) const noexcept {
  static_cast<void>(fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                              static_cast<off_t>(bytes)));
}

SharedMemory::SharedMemory(FileDescriptor fd, std::byte* data, std::size_t size)
    : fd_(std::move(fd)), data_(data), size_(size) {}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace hvd

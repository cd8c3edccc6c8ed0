#include "core/net/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/net/socket.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

const std::size_t kPage = whole_pages(1);

FileDescriptor file_of_pages(std::size_t pages) {
  FileDescriptor fd(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(pages * kPage)) == 0);
  return fd;
}

}  // namespace

TEST_CASE("bytes in whole pages") {
  CHECK(whole_pages(0) == 0);
  CHECK(whole_pages(kPage) == kPage);
  CHECK(whole_pages(kPage + 1) == 2 * kPage);
}

TEST_CASE("a range shows its part of the file, and more once it has grown") {
  const FileDescriptor fd = file_of_pages(3);
  const MappedRange all(fd.get(), 0, 3 * kPage);
  all.data()[kPage] = std::byte{1};
  all.data()[2 * kPage] = std::byte{2};
  MappedRange range(fd.get(), kPage, kPage);
  CHECK((range.size() == kPage && range.data()[0] == std::byte{1}));
  range.grow(2 * kPage);
  CHECK((range.size() == 2 * kPage && range.data()[0] == std::byte{1} && range.data()[kPage] == std::byte{2}));
  CHECK((range.contains(range.data()) && !range.contains(range.data() + 2 * kPage)));
}

TEST_CASE("a range that cannot grow is as it was") {
  const FileDescriptor fd = file_of_pages(1);
  MappedRange range(fd.get(), 0, kPage);
  CHECK_THROWS_AS(range.grow(std::size_t{1} << 60), Internal);
  range.data()[0] = std::byte{1};
  CHECK(range.size() == kPage);
}

TEST_CASE("a range is handed on, and one that maps nothing contains nothing") {
  const FileDescriptor fd = file_of_pages(1);
  MappedRange first(fd.get(), 0, kPage), second;
  CHECK(!second.contains(nullptr));
  second = std::move(first);
  CHECK((second.size() == kPage && first.data() == nullptr));
}

namespace {

FileDescriptor second_descriptor(const SharedMemory& memory) { return FileDescriptor(dup(memory.fd())); }

}  // namespace

TEST_CASE("fresh memory is zero, whole pages, and seen through every mapping") {
  const std::size_t bytes = GENERATE(0, 1, 4096, 4097, 1 << 20);
  CAPTURE(bytes);
  const SharedMemory one = SharedMemory::create(bytes, "test");
  CHECK(one.size() >= std::max<std::size_t>(1, bytes));
  CHECK(one.size() % static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) == 0);
  CHECK(std::all_of(one.data(), one.data() + one.size(), [](std::byte b) { return b == std::byte{0}; }));

  const SharedMemory other = SharedMemory::map(second_descriptor(one), bytes);
  CHECK(other.size() == one.size());
  CHECK(other.data() != one.data());
  one.data()[one.size() - 1] = std::byte{42};
  CHECK(other.data()[one.size() - 1] == std::byte{42});
}

TEST_CASE("memory cannot be cut short or grown") {
  const SharedMemory memory = SharedMemory::create(8192, "test");
  CHECK(ftruncate(memory.fd(), 4096) == -1);
  CHECK(ftruncate(memory.fd(), 1 << 20) == -1);
}

TEST_CASE("what was received is checked before it is mapped") {
  SECTION("too small") {
    const SharedMemory memory = SharedMemory::create(4096, "test");
    CHECK_THROWS_AS(SharedMemory::map(second_descriptor(memory), 4097), Internal);
  }
  SECTION("not sealed") {
    FileDescriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(fd.get(), 8192) == 0);
    CHECK_THROWS_AS(SharedMemory::map(std::move(fd), 8192), Internal);
  }
  SECTION("not memory") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const FileDescriptor writing(ends[1]);
    CHECK_THROWS_AS(SharedMemory::map(FileDescriptor(ends[0]), 1), Internal);
  }
  SECTION("nothing") { CHECK_THROWS_AS(SharedMemory::map(FileDescriptor(), 1), Internal); }
}

TEST_CASE("moving hands the mapping on") {
  SharedMemory first = SharedMemory::create(4096, "test");
  std::byte* const where = first.data();
  SharedMemory second = std::move(first);
  CHECK(second.data() == where);
  CHECK(first.data() == nullptr);
  second = SharedMemory::create(4096, "test");
  second.data()[0] = std::byte{1};
  CHECK(second.data()[0] == std::byte{1});
}

TEST_CASE("too much memory is an error, not a crash") {
  CHECK_THROWS_AS(SharedMemory::create(std::size_t{1} << 62, "test"), Internal);
}

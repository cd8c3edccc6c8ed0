#include "core/net/mapped_range.h"

#include <sys/mman.h>

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

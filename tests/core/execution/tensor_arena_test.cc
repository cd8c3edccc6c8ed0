#include "core/execution/tensor_arena.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("free ranges: the first that is long enough, aligned") {
  FreeRanges ranges(1000);
  CHECK(ranges.take(100, 1) == 0u);
  CHECK(ranges.take(100, 128) == 128u);
  CHECK(ranges.take(28, 1) == 100u);  // what alignment has left
  CHECK(!ranges.take(900, 1));
  CHECK(!ranges.take(700, 512));
  CHECK(ranges.take(772, 4) == 228u);
  CHECK(!ranges.take(1, 1));
}

TEST_CASE("free ranges: neighbours become one again") {
  FreeRanges ranges(300);
  for (const std::size_t offset : {0u, 100u, 200u}) REQUIRE(ranges.take(100, 1) == offset);
  const auto first = ranges.give_back(0), last = ranges.give_back(200), middle = ranges.give_back(100);
  CHECK((first.begin == 0 && first.end == 100));
  CHECK((last.begin == 200 && last.end == 300));
  CHECK((middle.begin == 0 && middle.end == 300));
  CHECK(ranges.all_free());
  CHECK(ranges.take(300, 1) == 0u);
}

TEST_CASE("free ranges: only what was taken is taken") {
  FreeRanges ranges(300);
  REQUIRE(ranges.take(100, 1) == 0u);
  CHECK(ranges.taken_at(0) == 100u);
  CHECK(!ranges.taken_at(50));
  CHECK(!ranges.taken_at(100));
  ranges.give_back(0);
  CHECK(!ranges.taken_at(0));
}

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPart = 256 * kPage;

// Two ranks' arenas, behind a page of something else, which alone is mapped.
struct Host {
  explicit Host(std::size_t part = kPart) : layout{.first = kPage, .part_bytes = part, .ranks = 2} {}

  ArenaLayout layout;
  std::shared_ptr<SharedMemory> memory =
      std::make_shared<SharedMemory>(SharedMemory::create(layout.end(), "test", kPage));
  TensorArena first{memory, layout, 0};
  TensorArena second{memory, layout, 1};

  std::size_t bytes_taken() const {
    struct stat status {};
    REQUIRE(fstat(memory->fd(), &status) == 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }
};

std::size_t address(const void* memory) { return reinterpret_cast<std::size_t>(memory); }

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * kPage;
}

// What a child finds out that may have `bytes` of address space more than it has.
std::string with_address_space(std::size_t bytes, const std::function<std::string()>& find) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = address_space() + bytes, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    const std::string text = find();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(ends[0], text.data(), text.size()))));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

}  // namespace

TEST_CASE("arena: memory of one rank is found by the others") {
  Host host;
  auto* memory = static_cast<std::byte*>(host.second.allocate(1000));
  std::memset(memory, 7, 1000);
  const auto offset = host.second.offset_of(memory, 1000);
  REQUIRE(offset);
  host.first.map_peer(1, *offset, 1000);
  CHECK(std::memcmp(host.first.at(1, *offset), memory, 1000) == 0);
  host.first.at(1, *offset)[999] = std::byte{8};
  CHECK(memory[999] == std::byte{8});
  CHECK((host.second.contains(memory) && !host.first.contains(memory)));
  CHECK(!host.first.offset_of(memory, 1000));
}

TEST_CASE("arena: what is not inside a part is nowhere") {
  Host host;
  auto* memory = static_cast<std::byte*>(host.first.allocate(kPage));
  int local = 0;
  CHECK(!host.first.contains(&local));
  CHECK(!host.first.contains(host.memory->data()));
  CHECK(!host.first.offset_of(&local, 4));
  CHECK(!host.first.offset_of(nullptr, 0));
  CHECK(host.first.offset_of(memory, kPart) == 0u);
  CHECK(!host.first.offset_of(memory, kPart + 1));
  CHECK(!host.first.offset_of(memory + 1, kPart));

  CHECK_NOTHROW(host.first.map_peer(1, kPart - 8, 8));
  CHECK_THROWS_AS(host.first.map_peer(1, kPart - 8, 9), Internal);
  CHECK_THROWS_AS(host.first.map_peer(1, ~std::uint64_t{0} - 3, 8), Internal);
}

TEST_CASE("arena: address space is taken in proportion to need, by the rank itself and by the others") {
  const std::size_t before = address_space();
  Host host(std::size_t{1} << 40);
  CHECK(address_space() - before < (4 << 20));
  auto* small = static_cast<std::byte*>(host.first.allocate(1000));
  auto* large = static_cast<std::byte*>(host.first.allocate(100 << 20));
  small[999] = large[(100 << 20) - 1] = std::byte{42};
  host.second.map_peer(0, host.first.offset_of(small, 1000).value(), 1000);
  CHECK(host.second.at(0, *host.first.offset_of(small, 1000))[999] == std::byte{42});
  host.second.map_peer(0, host.first.offset_of(large, 100 << 20).value(), 100 << 20);
  CHECK(host.second.at(0, *host.first.offset_of(small, 1000))[999] == std::byte{42});
  CHECK(host.second.at(0, *host.first.offset_of(large, 1))[(100 << 20) - 1] == std::byte{42});
  CHECK(address_space() - before < 4 * (100 << 20));
  host.first.free(large);
  host.first.free(small);
  CHECK(host.bytes_taken() <= kPage);
}

TEST_CASE("arena: what was mapped for small tensors becomes room for a large one") {
  Host host(std::size_t{256} << 20);
  for (const std::size_t bytes : {1000 << 10, 20'000 << 10, 60'000 << 10, 100'000 << 10}) {
    std::vector<void*> tensors{host.first.allocate(bytes), host.first.allocate(bytes)};
    for (void* memory : tensors) host.first.free(memory);
  }
  void* all = host.first.allocate(std::size_t{256} << 20);
  CHECK(host.first.offset_of(all, std::size_t{256} << 20) == 0u);
}

TEST_CASE("arena: with little address space there is what fits, and an error that says what bounds it") {
  const std::string text = with_address_space(80 << 20, [] {
    Host host(std::size_t{1} << 40);
    void* small = host.first.allocate(1 << 20);
    host.second.map_peer(0, *host.first.offset_of(small, 1), 1);
    host.first.allocate(20 << 20);
    host.first.allocate(17 << 20);  // where as much as there is already would be too much
    try {
      host.first.allocate(60 << 20);
      return std::string("allocated");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
  CHECK_THAT(text, Catch::Matchers::Contains("bytes of address space: ulimit -v") &&
                       Catch::Matchers::Contains("HVD_ARENA_LIMIT"));
}

TEST_CASE("arena: alignment") {
  Host host;
  for (const std::size_t bytes : {0, 1, 100, 128, 129, 4000, 4096, 5000, 1 << 16}) {
    CAPTURE(bytes);
    CHECK(address(host.first.allocate(bytes)) % (bytes < kPage ? 128 : kPage) == 0);
  }
}

TEST_CASE("arena: the bound, and the text that names it") {
  Host host;
  CHECK_THROWS_AS(host.first.allocate(kPart + 1), InvalidArgument);
  CHECK_THROWS_AS(host.first.allocate(~std::size_t{0}), InvalidArgument);
  void* all = host.first.allocate(kPart);
  CHECK_THROWS_WITH(host.first.allocate(1), Catch::Matchers::Contains("1048576 of 1048576 bytes are in use") &&
                                                Catch::Matchers::Contains("HVD_ARENA_LIMIT"));
  CHECK_NOTHROW(host.second.allocate(kPart));
  host.first.free(all);
  CHECK_NOTHROW(host.first.allocate(kPart));
}

TEST_CASE("arena: memory is taken when it is allocated and given back when it is freed") {
  Host host;
  const std::size_t before = host.bytes_taken();
  void* memory = host.first.allocate(64 * kPage);
  CHECK(host.bytes_taken() >= before + 64 * kPage);
  std::memset(memory, 1, 64 * kPage);
  host.first.free(memory);
  CHECK(host.bytes_taken() == before);
  const auto usage = host.first.usage();
  CHECK((usage.limit == kPart && usage.used == 0 && usage.peak == 64 * kPage));
}

TEST_CASE("arena: only what was handed out can be given back, and once") {
  Host host;
  auto* memory = static_cast<std::byte*>(host.first.allocate(1000));
  CHECK_THROWS_AS(host.first.free(memory + 128), InvalidArgument);
  CHECK_THROWS_AS(host.second.free(memory), InvalidArgument);
  host.first.free(memory);
  CHECK_THROWS_AS(host.first.free(memory), InvalidArgument);
}

TEST_CASE("arena: a forked child gives nothing back") {
  Host host;
  auto* memory = static_cast<char*>(host.first.allocate(64 * kPage));
  memory[5 * kPage] = 42;
  const pid_t child = fork();
  if (child == 0) {
    host.first.free(memory);
    _exit(0);
  }
  int status = -1;
  REQUIRE((waitpid(child, &status, 0) == child && status == 0));
  CHECK(memory[5 * kPage] == 42);
  CHECK(host.first.usage().used == 64 * kPage);
}

TEST_CASE("arena: any sequence of allocations is disjoint, and all of it is free again at the end") {
  Host host;
  std::minstd_rand random(GENERATE(1u, 2u, 3u));
  struct Block {
    unsigned char* memory;
    std::size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  const auto free_one = [&] {
    const std::size_t i = random() % blocks.size();
    const Block block = blocks[i];
    REQUIRE(std::all_of(block.memory, block.memory + block.bytes, [&](auto byte) { return byte == block.mark; }));
    host.first.free(block.memory);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (int i = 0; i < 500; ++i) {
    const std::size_t bytes = 1 + random() % (random() % 3 == 0 ? 30'000 : 300);
    const auto mark = static_cast<unsigned char>(i);
    auto* memory = static_cast<unsigned char*>(host.first.allocate(bytes));
    std::memset(memory, mark, bytes);
    blocks.push_back({memory, bytes, mark});
    if (random() % 2 == 0 || blocks.size() > 30) free_one();
  }
  while (!blocks.empty()) free_one();
  CHECK(host.first.usage().used == 0);
  CHECK_NOTHROW(host.first.allocate(kPart));
}

TEST_CASE("arena: threads allocate and free at once") {
  Host host;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        void* memory = host.first.allocate(200);
        static_cast<char*>(memory)[0] = 'x';
        host.first.free(memory);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(host.first.usage().used == 0);
}

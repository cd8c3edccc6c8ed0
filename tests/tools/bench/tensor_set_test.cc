#include "tools/bench/tensor_set.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "tests/support/catch.h"

namespace hvd::bench {
namespace {

std::int64_t total(const TensorSet& set) { return std::accumulate(set.begin(), set.end(), std::int64_t{0}); }

TEST_CASE("sizes are bytes or powers of 1024") {
  struct Row {
    const char* text;
    std::uint64_t bytes;
  };
  const Row rows[] = {{"8", 8},          {"1K", 1024},          {"64k", 65536},
                      {"4M", 4 << 20},   {"64MB", 64ull << 20}, {"64MiB", 64ull << 20},
                      {"2G", 2ull << 30}};
  for (const Row& row : rows) {
    INFO(row.text);
    CHECK(parse_size(row.text) == row.bytes);
  }
}

TEST_CASE("what is no size is an error that shows it") {
  for (const char* text : {"", "0", "-8", "K", "8X", "8 bytes", "1.5M", "99999999999999999999", "999999T", "0x10"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_size(text), std::invalid_argument);
  }
  CHECK_THROWS_WITH(parse_size("8X"), "\"8X\" is no number of bytes, such as 8, 64K or 1M");
}

TEST_CASE("a range grows by its factor and stops at its end") {
  using Sizes = std::vector<std::uint64_t>;
  CHECK(size_range(8, 64, 2) == Sizes{8, 16, 32, 64});
  CHECK(size_range(8, 63, 2) == Sizes{8, 16, 32});
  CHECK(size_range(1, 1000, 10) == Sizes{1, 10, 100, 1000});
  CHECK(size_range(7, 7, 2) == Sizes{7});
  CHECK(size_range(1, ~std::uint64_t{0}, 2).size() == 64);
  CHECK_THROWS_AS(size_range(8, 4, 2), std::invalid_argument);
  CHECK_THROWS_AS(size_range(8, 64, 1), std::invalid_argument);
}

TEST_CASE("ResNet-50 has 161 tensors of 25.6 million elements, the last layer's first") {
  const TensorSet set = resnet50();
  CHECK(set.size() == 161);
  CHECK(total(set) == 25'557'032);
  CHECK(set[0] == 1000);
  CHECK(set[1] == 2048 * 1000);
  CHECK(set.back() == 3 * 64 * 7 * 7);
  CHECK(*std::max_element(set.begin(), set.end()) == 512 * 512 * 9);
  CHECK(std::count(set.begin(), set.end(), 512 * 512 * 9) == 3);
  CHECK(std::count(set.begin(), set.end(), 64) == 14);  // of seven convolutions with 64 channels
}

TEST_CASE("a set of equal tensors is given by their number and the bytes of all") {
  CHECK(parse_tensor_set("resnet50", 2) == resnet50());
  CHECK(parse_tensor_set("100x64MB", 4) == TensorSet(100, (64 << 20) / 100 / 4));
  CHECK(parse_tensor_set("1x8", 8) == TensorSet{1});
  CHECK(parse_tensor_set("4x8", 4) == TensorSet(4, 0));
  for (const char* text :
       {"", "resnet", "100", "x64MB", "0x64MB", "100x", "-1x8", "100x64MBx", "10x10x10", "1000000x1G"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_tensor_set(text, 4), std::invalid_argument);
  }
}

TEST_CASE("tensors are made divisible, never empty") {
  CHECK(divisible({0, 1, 2, 3, 7, 1000}, 3) == TensorSet{3, 3, 3, 3, 6, 999});
  CHECK(divisible({0, 1, 5}, 1) == TensorSet{1, 1, 5});
}

}  // namespace
}  // namespace hvd::bench

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "tests/support/catch.h"
#include "tools/bench/command_line.h"

namespace hvd::bench {

namespace {

using Arguments = std::vector<std::string>;

TEST_CASE("without arguments: allreduce of 8 bytes to 64 MB of float32, summed out of place") {
  const Settings settings = parse_command_line({});
  CHECK_FALSE(settings.ranks.has_value());
  CHECK(settings.collective == HVD_ALLREDUCE);
  CHECK(settings.dtype == HVD_FLOAT32);
  CHECK(settings.op == sum);
  CHECK_FALSE(settings.in_place);
  CHECK_FALSE(settings.grouped);
  CHECK_FALSE(settings.arena);
  CHECK(settings.json.empty());
  REQUIRE(settings.rows.size() == 24);
  CHECK(settings.rows.front() == TensorSet{2});
  CHECK(settings.rows.back() == TensorSet{16 << 20});
}

TEST_CASE("options arrive where they belong, in any order") {
  const Settings settings =
      parse_command_line({"-d", "bfloat16", "-o", "max", "--sizes", "8,1K", "reducescatter", "--arena", "--seconds",
                          "0.25", "-w", "7", "--json", "out file.json", "-np", "4"});
  CHECK(settings.ranks == 4);
  CHECK(settings.collective == HVD_REDUCESCATTER);
  CHECK(settings.dtype == HVD_BFLOAT16);
  CHECK(settings.op == max);
  CHECK(settings.arena);
  CHECK(settings.seconds == 0.25);
  CHECK(settings.warmup == 7);
  CHECK(settings.json == "out file.json");
  CHECK(settings.rows == std::vector<TensorSet>{{4}, {512}});
}

TEST_CASE("the number of ranks is understood with one dash or two") {
  for (const Arguments& spelling : {Arguments{"-np", "3"}, {"--np", "3"}, {"-np=3"}, {"--np=3"}}) {
    CHECK(parse_command_line(spelling).ranks == 3);
  }
}

TEST_CASE("a range in the manner of NCCL's tests") {
  const Settings settings = parse_command_line({"-b", "4", "-e", "1K", "-f", "4"});
  CHECK(settings.rows == std::vector<TensorSet>{{1}, {4}, {16}, {64}, {256}});
}

TEST_CASE("a set of tensors is one row; a group is in place; a barrier has a row without tensors") {
  const Settings set = parse_command_line({"--tensors", "100x64MB", "--grouped"});
  REQUIRE(set.rows.size() == 1);
  CHECK(set.rows[0].size() == 100);
  CHECK(set.grouped);
  CHECK(set.in_place);
  const Settings barrier = parse_command_line({"barrier"});
  CHECK(barrier.rows == std::vector<TensorSet>{{}});
  CHECK_FALSE(barrier.op.has_value());
  CHECK_FALSE(parse_command_line({"allgather"}).op.has_value());
}

TEST_CASE("--help and --version say something") {
  CHECK(parse_command_line({"--version"}).information == "hvd bench " + std::string(hvd_version()) + "\n");
  const auto help = parse_command_line({"barrier", "--help"}).information;
  REQUIRE(help.has_value());
  for (const char* part : {"Usage: hvd bench [-np N]", "--tensors SET", "100 tensors of 64 MB in all", "--json FILE"}) {
    CHECK(help->find(part) != std::string::npos);
  }
}

TEST_CASE("a wrong command line is an error of one line that names what is wrong") {
  struct Row {
    Arguments arguments;
    std::string in_message;
  };
  const Row rows[] = {
      {{"allreduse"}, "allreduse"},
      {{"allreduce", "barrier"}, "barrier"},
      {{"--frob"}, "--frob"},
      {{"-d", "float"}, "float"},
      {{"-d"}, "--dtype"},
      {{"-o", "prod"}, "prod"},
      {{"-b", "x"}, "\"x\""},
      {{"-b", "0"}, "\"0\""},
      {{"-b", "8", "-e", "4"}, "-b 8 is more than -e 4"},
      {{"-f", "1"}, "-f 1"},
      {{"-f", "two"}, "two"},
      {{"--sizes", "8,x"}, "\"x\""},
      {{"--sizes", "8", "-b", "8"}, "--min-bytes"},
      {{"--tensors", "vgg"}, "--tensors vgg"},
      {{"--tensors", "resnet50", "--sizes", "8"}, "--sizes: --tensors says the size"},
      {{"allgatherv"}, "allgatherv: allreduce, allgather, broadcast, reducescatter, alltoall or barrier"},
      {{"-np", "0"}, "-np 0: at least one rank"},
      {{"-np", "four"}, "four"},
      {{"--seconds", "-1"}, "--seconds"},
      {{"--seconds", "nan"}, "--seconds"},
      {{"-w", "-1"}, "--warmup"},
      {{"broadcast", "-o", "sum"}, "--op: only allreduce and reducescatter"},
      {{"allgather", "--in-place"}, "--in-place"},
      {{"reducescatter", "--grouped"}, "--grouped"},
      {{"-d", "bool"}, "bool"},
      {{"barrier", "-d", "int8"}, "--dtype: a barrier has no tensors"},
      {{"barrier", "--sizes", "8"}, "--sizes: a barrier has no tensors"},
  };
  for (const Row& row : rows) {
    INFO(row.in_message);
    try {
      parse_command_line(row.arguments);
      FAIL("no error");
    } catch (const std::invalid_argument& error) {
      const std::string message = error.what();
      CHECK(message.find(row.in_message) != std::string::npos);
      CHECK(message.find('\n') == std::string::npos);
    }
  }
}

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

TEST_CASE("the bus bandwidth's factors are those of NCCL's tests") {
  struct Row {
    hvd_collective collective;
    double of_two, of_four, of_one;
  };
  const Row rows[] = {
      {HVD_ALLREDUCE, 1, 1.5, 0},   {HVD_ALLGATHER, 0.5, 0.75, 0}, {HVD_REDUCESCATTER, 0.5, 0.75, 0},
      {HVD_ALLTOALL, 0.5, 0.75, 0}, {HVD_BROADCAST, 1, 1, 1},
  };
  for (const Row& row : rows) {
    INFO(text_of(kCollectives, row.collective));
    CHECK(busbw_factor(row.collective, 1) == row.of_one);
    CHECK(busbw_factor(row.collective, 2) == row.of_two);
    CHECK(busbw_factor(row.collective, 4) == row.of_four);
  }
}

TEST_CASE("every word leads to its value and back") {
  for (const auto& word : kCollectives) CHECK(find(kCollectives, text_of(kCollectives, word.value)) == word.value);
  for (const auto& word : kDTypes) CHECK(find(kDTypes, text_of(kDTypes, word.value)) == word.value);
  for (const auto& word : kReduceOps) CHECK(find(kReduceOps, text_of(kReduceOps, word.value)) == word.value);
  CHECK_FALSE(find(kDTypes, "float").has_value());
}

TEST_CASE("element types have the sizes of their names") {
  struct Row {
    const char* name;
    std::size_t size;
  };
  const Row rows[] = {{"uint8", 1},   {"int8", 1},     {"int16", 2},   {"int32", 4},   {"int64", 8},
                      {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"bool", 1}};
  for (const Row& row : rows) CHECK(size_of(find(kDTypes, row.name).value()) == row.size);
}

}  // namespace

}  // namespace hvd::bench

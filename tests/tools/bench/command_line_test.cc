#include "tools/bench/command_line.h"

#include <stdexcept>

#include "tests/support/catch.h"

namespace hvd::bench {
namespace {

using Arguments = std::vector<std::string>;

TEST_CASE("without arguments: allreduce of 8 bytes to 64 MB of float32, summed out of place") {
  const Settings settings = parse_command_line({});
  CHECK_FALSE(settings.ranks.has_value());
  CHECK(settings.collective == Collective::allreduce);
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
  CHECK(settings.collective == Collective::reducescatter);
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

}  // namespace
}  // namespace hvd::bench

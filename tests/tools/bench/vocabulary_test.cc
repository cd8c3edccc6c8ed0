#include "tools/bench/vocabulary.h"

#include "tests/support/catch.h"

namespace hvd::bench {
namespace {

TEST_CASE("the bus bandwidth's factors are those of NCCL's tests") {
  struct Row {
    Collective collective;
    double of_two, of_four, of_one;
  };
  const Row rows[] = {
      {Collective::allreduce, 1, 1.5, 0},        {Collective::allgather, 0.5, 0.75, 0},
      {Collective::reducescatter, 0.5, 0.75, 0}, {Collective::alltoall, 0.5, 0.75, 0},
      {Collective::broadcast, 1, 1, 1},
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

#include "ops/algorithms/allreduce_algorithm.h"

#include <string>

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("small allreduces take few latencies, large ones few bytes") {
  struct Case {
    std::size_t bytes;
    int ranks;
    AllreduceAlgorithm deterministic, free;
  };
  using enum AllreduceAlgorithm;
  const auto c = GENERATE(values<Case>({
      {0, 2, one_shot, one_shot},
      {4 << 10, 3, one_shot, one_shot},
      {4 << 10, 4, bruck, bruck},
      {8, 1000, bruck, bruck},
      {(4 << 10) + 1, 16, direct, direct},
      {256 << 10, 2, direct, direct},
      {(256 << 10) + 1, 2, ring, halving_doubling},
      {(4 << 10) + 1, 17, ring, halving_doubling},
      {4 << 20, 64, ring, halving_doubling},
      {(4 << 20) + 1, 64, ring, ring},
  }));
  CAPTURE(c.bytes, c.ranks);
  const AllreduceSize size{.bytes = c.bytes, .ranks = c.ranks};
  CHECK(std::string(algorithm_name(choose_by_size(true)(size))) == algorithm_name(c.deterministic));
  CHECK(std::string(algorithm_name(choose_by_size(false)(size))) == algorithm_name(c.free));
}

#include "simulation/horovod.h"

#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::simulation;

TEST_CASE("A star takes time by the number of ranks, recursive doubling by its logarithm") {
  const NetworkParameters network;
  const auto round = [&](int ranks) {
    return horovod_round({.ranks = ranks, .tensors = 1000, .request_bytes = 20'000, .response_bytes = 20'000}, network);
  };
  CHECK(round(1).requests == 0ns);
  CHECK(round(1).star_of_bits == 0ns);
  const auto small = round(1025);
  const auto large = round(2049);
  const Duration fixed = 2 * (network.between_hosts.latency + network.between_hosts.overhead);
  CHECK(large.star_of_bits - fixed == 2 * (small.star_of_bits - fixed));
  CHECK(large.tree_of_bits * 11 == small.tree_of_bits * 12);
  CHECK(large.requests > 1.9 * small.requests);
}

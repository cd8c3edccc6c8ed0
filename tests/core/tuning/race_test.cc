#include "core/tuning/race.h"

#include <array>
#include <vector>

#include "core/tuning/median.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("The median of odd and even numbers of values, in any order") {
  CHECK(median({3}) == 3);
  CHECK(median({4, 2}) == 3);
  CHECK(median({9, 1, 5}) == 5);
  CHECK(median({8, 1, 3, 4}) == 3.5);
  CHECK(median({2, 2, 2, 1000}) == 2);
}

TEST_CASE("A race ends with the entrant that costs least, after as many samples as it says") {
  struct Row {
    std::vector<double> costs;  // by entrant
    std::size_t favourite;
    std::size_t winner;
    int samples;
  };
  const Row rows[] = {
      {{5}, 0, 0, 0},          {{2, 1}, 0, 1, 2},           {{3, 1, 2}, 0, 1, 5},    {{4, 3, 2, 1}, 0, 3, 6},
      {{1, 2, 3, 4}, 3, 0, 6}, {{5, 4, 3, 1, 2}, 2, 3, 10}, {{1, 1, 1, 1}, 2, 2, 6},  // equals: the favourite
      {{2, 1, 2, 1}, 0, 1, 6},
  };
  for (const Row& row : rows) {
    CAPTURE(row.costs, row.favourite);
    Race race(row.costs.size(), row.favourite);
    int samples = 0;
    for (; !race.decided(); ++samples) race.took(std::array{row.costs[race.next()], row.costs[race.next()]});
    CHECK(race.winner() == row.winner);
    CHECK(samples == row.samples);
    CHECK(Race::samples(row.costs.size()) == row.samples);
  }
}

TEST_CASE("Everyone runs once in a round, the favourite first, and those with the higher costs leave") {
  const std::vector<double> costs = {4, 1, 3, 2};
  Race race(4, 2);
  std::vector<std::size_t> order;
  while (!race.decided()) {
    order.push_back(race.next());
    race.took(std::array{costs[race.next()]});
  }
  CHECK(order == std::vector<std::size_t>{2, 0, 1, 3, 1, 3});
}

TEST_CASE("An entrant is judged by all the steps that it has had") {
  Race race(4, 0);
  for (const double cost : {1.0, 2.0, 8.0, 9.0}) race.took(std::array{cost, cost, cost});
  // 0 has one slow step more than 1, which its median of six does not see.
  race.took(std::array{1.0, 1.0, 50.0});
  race.took(std::array{2.0, 2.0, 2.0});
  CHECK(race.winner() == 0);
}
